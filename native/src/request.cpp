#include "request.h"

#include <algorithm>
#include <array>

#include "compact.h"
#include "prefill.h"
#include "sampling/sampling_options.h"
#include "status.h"
#include "timer.h"
#include "verify.h"

namespace pilotfish {
namespace {

bool contains(std::span<const int32_t> ids, int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

}  // namespace

Request::Request(std::shared_ptr<Engine> engine, std::span<const int32_t> ids, const pf_generate_options& options)
    : engine_(std::move(engine)),
      typical_{options.typical_epsilon, options.typical_delta},
      max_new_tokens_(options.max_new_tokens),
      reuses_prefix_(options.reuse_prefix == 1),
      echoes_(options.echo == 1),
      max_tokens_(static_cast<int32_t>(
          std::min<int64_t>(engine_->max_context(), int64_t(ids.size()) + options.max_new_tokens))),
      chooser_(sampling_options(options), engine_->workspace().sampler, processor_options(options, engine_->eos_ids()),
               {int32_t(ids.size()), max_tokens_, engine_->num_ids()}),
      report_(engine_->workspace().sampler, engine_->num_ids(), options.num_top_logprobs,
              engine_->target().limits().max_outputs),
      random_(options.seed),
      device_settings_(engine_->chooses_on_device(options) ? std::optional(DeviceRound::settings_of(options))
                                                           : std::nullopt),
      tokens_(ids.begin(), ids.end()),
      speculation_(*engine_, options, static_cast<int32_t>(ids.size()), max_tokens_),
      opened_(Clock::now()) {
  const int32_t max_context = engine_->max_context();
  engine_->check_ids(ids);
  check_option_ids(options, engine_->num_ids());
  if (ids.size() >= static_cast<size_t>(max_context)) {
    fail(PF_CONTEXT_FULL, "the prompt has ", ids.size(), " tokens, the context holds ", max_context,
         " and one must be left for the output");
  }
  if (options.ignore_eos == 0) eos_ids_.assign(engine_->eos_ids().begin(), engine_->eos_ids().end());
  stop_ids_.assign(options.stop_ids, options.stop_ids + options.num_stop_ids);
  tokens_.reserve(max_tokens_);
  stats_.struct_size = sizeof stats_;
  stats_.lossy = typical_.epsilon > 0 ? 1 : 0;
  stats_.num_prompt_tokens = static_cast<int32_t>(ids.size());
  const std::lock_guard lock(engine_->mutex());
  // Rows of rejected siblings need slots too, where the context has them.
  const int32_t max_slots =
      std::min(max_context, max_tokens_ + speculation_.max_slots() - speculation_.limits().max_depth);
  // The last token of the prompt always runs: its logits are needed. An echo needs those of all.
  const bool adopts = reuses_prefix_ && !echoes_;
  sequence_.emplace(*engine_, max_slots, std::span(tokens_).first(adopts ? tokens_.size() - 1 : 0));
  speculation_.adopt(*sequence_);
}

Request::~Request() {
  const std::lock_guard lock(engine_->mutex());
  room_.reset();
  if (sequence_) speculation_.remember();
  if (!failed_) engine_->remember(std::span<const int32_t>(tokens_).subspan(stats_.num_prompt_tokens));
  if (sequence_ && reuses_prefix_ && !failed_) {
    sequence_->set_num_head_tokens(speculation_.num_head_retained(*sequence_));
    sequence_->retain(std::move(tokens_));
  }
  sequence_.reset();
}

void Request::stop(size_t num_tokens) {
  const std::lock_guard lock(engine_->mutex());
  const size_t num_written = last_step_.num_tokens, num_new = last_step_.num_new_tokens;
  if (failed_ || num_tokens > num_written || num_written - num_tokens >= num_new) {
    fail(PF_INVALID_ARGUMENT, "num_tokens is ", num_tokens, ": the last step wrote ", last_step_.num_tokens, ", ",
         last_step_.num_new_tokens, " of them new, and one of these must be kept");
  }
  const auto num_dropped = static_cast<int32_t>(num_written - num_tokens);
  // Accepted tokens come first, the target's own one last.
  const int32_t num_kept_new = last_step_.num_new_tokens - num_dropped;
  stats_.num_accepted -= last_step_.num_accepted - std::min(last_step_.num_accepted, num_kept_new);
  stats_.num_new_tokens -= num_dropped;
  tokens_.resize(tokens_.size() - static_cast<size_t>(num_dropped));
  const auto most_cached = static_cast<int32_t>(tokens_.size()) - 1;
  const int32_t num_target = std::min(sequence_->num_target_tokens(), most_cached);
  const int32_t num_draft = std::min(sequence_->num_draft_tokens(), most_cached);
  Reservation(*sequence_, std::max(num_target, num_draft)).commit(num_target, num_draft);
  report_.keep(num_tokens);
  last_step_ = {};
  finish_ = PF_FINISH_STOP;
}

bool Request::begin_round(const PassShare& share) {
  speculation_.plan(tokens_, room_of_round(), share, draft());
  room_.emplace(*sequence_, static_cast<int32_t>(tokens_.size()) + num_slots(draft()));
  std::optional<Verdict> verdict;
  if (runs_on_device()) {
    verdict = decide_on_device();
  } else if (speculation_.draft(round_so_far(), draft(), stats_)) {
    if (!device_settings_) return true;
    verdict = verify_on_device(draft());
  }
  if (verdict) {
    finish_round(*verdict);
  } else {
    finish_ = PF_FINISH_CANCELLED;
    room_.reset();
  }
  return false;
}

TreePass Request::rows_to_verify() const noexcept { return verification_rows(tokens_.back(), draft().tree); }

void Request::finish_round(const Verdict& verdict) {
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  const Draft& drafted = draft();
  const int32_t num_draft_cached = compact_caches(verdict.accepted);
  num_written_ = emit(verdict, tokens_out_);
  if (speculation_.reads_hidden()) observe(verdict, static_cast<int32_t>(num_written_));
  ++stats_.num_rounds;
  stats_.num_drafted += drafted.tree.size();
  stats_.num_failed_drafts += drafted.is_broken ? 1 : 0;
  // Neither cache has the last token emitted.
  const auto num_kept = static_cast<int32_t>(tokens_.size()) - 1;
  speculation_.record(drafted, verdict.accepted, std::span<const int32_t>(tokens_).subspan(num_tokens),
                      std::min(num_draft_cached, num_kept), stats_);
  room_->commit(num_kept, speculation_.num_draft_retained());
  room_.reset();
}

Speculation::Round Request::round_so_far() noexcept {
  return {.tokens = tokens_,
          .block_table = sequence_->block_table(),
          .chooser = chooser_,
          .random = random_,
          .cancelled = cancelled_};
}

// Of each token emitted but the last, the row that gave it, and of the token before them.
void Request::observe(const Verdict& verdict, int32_t num_emitted) {
  std::array<int32_t, TokenTree::kMaxTokens + 1> rows{verdict.first_row};
  for (int32_t i = 1; i < num_emitted; ++i) rows[i] = verdict.first_row + verdict.accepted.path[i - 1] + 1;
  speculation_.observe({.hidden = engine_->target().hidden(),
                        .rows = {rows.data(), size_t(num_emitted)},
                        .position = static_cast<int32_t>(tokens_.size()) - 1 - num_emitted,
                        .tokens = tokens_,
                        .block_table = sequence_->block_table()});
}

TreeLimits Request::room_of_round() const noexcept {
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  return {sequence_->max_tokens() - num_tokens, max_tokens_ - num_tokens - 1};
}

pf_decision Request::decision() const noexcept {
  const RoundPlan& plan = speculation_.decision();
  const std::span<const int8_t> ranks = speculation_.accepted_ranks();
  pf_decision found{.struct_size = sizeof(pf_decision),
                    .reason = static_cast<int32_t>(plan.reason),
                    .num_lookup = plan.num_lookup,
                    .num_model = plan.source == Source::kDraft ? plan.num_draft : 0,
                    .expected_tokens = plan.tokens,
                    .expected_seconds = plan.seconds,
                    .num_head = plan.source == Source::kHead ? plan.num_draft : 0,
                    .num_levels = plan.num_levels,
                    .num_passes = speculation_.num_passes(),
                    .num_verified = speculation_.num_verified(),
                    .num_accepted = static_cast<int32_t>(ranks.size()),
                    .ranks = {}};
  std::copy(ranks.begin(), ranks.end(), found.ranks);
  return found;
}

Accepted Request::accept(const Logits& target) {
  Workspace& workspace = engine_->workspace();
  const Verification verification{
      .tree = draft().tree, .target = target, .num_ids = engine_->num_ids(), .tokens = tokens_, .chooser = chooser_};
  if (typical_.epsilon > 0) return accept_typical(verification, typical_, workspace.distribution);
  if (speculation_.draws()) {
    return accept_rejection(verification, draft().distributions, random_, workspace.distribution);
  }
  return accept_equal(verification);
}

// Moves the accepted path behind the sequence in both caches; returns how many tokens, path included, the draft's
// holds.
int32_t Request::compact_caches(const Accepted& accepted) {
  const Draft& drafted = draft();
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  const std::span<const int32_t> path(accepted.path.data(), accepted.num_accepted);
  compact(engine_->target().cache(), sequence_->block_table(), num_tokens, path);
  if (drafted.num_cached < num_tokens) return drafted.num_cached;
  std::array<int32_t, TokenTree::kMaxTokens> rows;  // counted, as path is, from the token after the sequence
  int32_t num_rows = 0;
  for (const int32_t index : path) {
    if (drafted.tree[index].draft_row == 0) break;
    rows[num_rows++] = drafted.tree[index].draft_row - 1;
  }
  if (num_rows > 0) {
    compact(engine_->draft()->cache(), sequence_->block_table(), num_tokens, {rows.data(), size_t(num_rows)});
  }
  return num_tokens + num_rows;
}

size_t Request::emit(const Verdict& verdict, std::span<pf_token> tokens_out) {
  const Accepted& accepted = verdict.accepted;
  const TokenTree& tree = draft().tree;
  const double seconds = Timer::between(opened_, Clock::now());
  const pf_origin last = tree.size() == 0                                                        ? PF_ORIGIN_PLAIN
                         : tree.next_child(accepted.last(), accepted.last()) == TokenTree::kNone ? PF_ORIGIN_BONUS
                                                                                                 : PF_ORIGIN_CORRECTED;
  const int32_t num_tokens = accepted.num_accepted + (accepted.next_id == Accepted::kNoToken ? 0 : 1);
  int32_t num_emitted = 0;
  int32_t row = 0;
  while (num_emitted < num_tokens && finish_ == PF_FINISH_NONE) {
    const bool is_drafted = num_emitted < accepted.num_accepted;
    const int32_t id = is_drafted ? tree[accepted.path[num_emitted]].id : accepted.next_id;
    tokens_out[num_emitted] = {
        .id = id,
        .origin = is_drafted ? PF_ORIGIN_ACCEPTED : last,
        .logprob = verdict.logits ? report_.add(verdict.logits->row(row), id) : report_.add(verdict.logprobs[row]),
        .seconds = seconds};
    if (is_drafted) row = accepted.path[num_emitted] + 1;
    tokens_.push_back(id);
    ++num_emitted;
    ++stats_.num_new_tokens;
    stats_.num_accepted += is_drafted ? 1 : 0;
    finish_ = finish_after(id);
  }
  return num_emitted;
}

// The earliest of all reasons wins, and at one token the more specific one.
pf_finish Request::finish_after(int32_t id) const {
  if (contains(eos_ids_, id)) return PF_FINISH_EOS;
  if (contains(stop_ids_, id)) return PF_FINISH_STOP;
  if (stats_.num_new_tokens == max_new_tokens_) return PF_FINISH_LENGTH;
  if (static_cast<int32_t>(tokens_.size()) == max_tokens_) return PF_FINISH_CONTEXT;
  return PF_FINISH_NONE;
}

}  // namespace pilotfish
