#include "request.h"

#include <algorithm>
#include <array>

#include "compact.h"
#include "options.h"
#include "prefill.h"
#include "status.h"
#include "verify.h"

namespace pilotfish {
namespace {

double seconds_between(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Adds the time from its making to its end to one of the counters.
class Timer {
 public:
  explicit Timer(double& seconds) : seconds_(seconds), start_(std::chrono::steady_clock::now()) {}
  Timer(Timer&&) = delete;
  ~Timer() { seconds_ += seconds_between(start_, std::chrono::steady_clock::now()); }

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_;
};

bool contains(std::span<const int32_t> ids, int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

}  // namespace

Request::Request(std::shared_ptr<Engine> engine, std::span<const int32_t> ids, const pf_generate_options& options)
    : engine_(std::move(engine)),
      shape_(tree_shape(options)),
      typical_{options.typical_epsilon, options.typical_delta},
      draft_temperatures_(options.draft_temperatures, options.draft_temperatures + options.num_draft_temperatures),
      max_new_tokens_(options.max_new_tokens),
      reuses_prefix_(options.reuse_prefix == 1),
      chooser_({options.temperature, options.top_k, options.top_p, options.min_p}, engine_->workspace().sampler),
      random_(options.seed),
      tokens_(ids.begin(), ids.end()),
      opened_(Clock::now()) {
  const int32_t max_context = engine_->max_context();
  engine_->check_ids(ids);
  if (shape_.num_tokens() > 0 && !engine_->draft()) {
    fail(PF_INVALID_ARGUMENT, "a round is to draft ", shape_.num_tokens(),
         " tokens, but the bundle has no draft model");
  }
  if (ids.size() >= static_cast<size_t>(max_context)) {
    fail(PF_CONTEXT_FULL, "the prompt has ", ids.size(), " tokens, the context holds ", max_context,
         " and one must be left for the output");
  }
  if (options.adaptive_draft == 1 && engine_->draft()) controller_.emplace(engine_->controller());
  if (options.ignore_eos == 0) eos_ids_.assign(engine_->eos_ids().begin(), engine_->eos_ids().end());
  stop_ids_.assign(options.stop_ids, options.stop_ids + options.num_stop_ids);
  max_tokens_ = static_cast<int32_t>(std::min<int64_t>(max_context, int64_t(ids.size()) + max_new_tokens_));
  tokens_.reserve(max_tokens_);
  stats_.struct_size = sizeof stats_;
  stats_.lossy = typical_.epsilon > 0 ? 1 : 0;
  stats_.num_prompt_tokens = static_cast<int32_t>(ids.size());
  const std::lock_guard lock(engine_->mutex());
  // Rows of rejected siblings need slots too, where the context has them.
  const int32_t max_slots = std::min(max_context, max_tokens_ + shape_.num_tokens() - shape_.depth());
  // The last token of the prompt always runs: its logits are needed.
  sequence_.emplace(*engine_, max_slots, std::span(tokens_).first(reuses_prefix_ ? tokens_.size() - 1 : 0));
}

Request::~Request() {
  const std::lock_guard lock(engine_->mutex());
  if (sequence_ && reuses_prefix_ && !failed_) sequence_->retain(std::move(tokens_));
  sequence_.reset();
}

size_t Request::step(std::span<pf_token> tokens_out, pf_finish& finish) {
  if (tokens_out.size() <= static_cast<size_t>(shape_.depth())) {
    fail(PF_INVALID_ARGUMENT, "capacity is ", tokens_out.size(), ", a round needs ", shape_.depth() + 1);
  }
  const std::lock_guard lock(engine_->mutex());
  if (failed_) fail(PF_INVALID_ARGUMENT, "the request failed in an earlier step and can only be closed");
  size_t num_tokens = 0;
  if (finish_ == PF_FINISH_NONE && cancelled_) finish_ = PF_FINISH_CANCELLED;
  if (finish_ == PF_FINISH_NONE) {
    failed_ = true;  // until the step is through
    const auto start = Clock::now();
    const double passes_before = stats_.prefill_seconds + stats_.draft_seconds + stats_.verify_seconds;
    num_tokens = stats_.num_new_tokens == 0 ? first_token(tokens_out) : round(tokens_out);
    const double passes = stats_.prefill_seconds + stats_.draft_seconds + stats_.verify_seconds - passes_before;
    stats_.other_seconds += seconds_between(start, Clock::now()) - passes;
    failed_ = false;
  }
  finish = finish_;
  return num_tokens;
}

size_t Request::first_token(std::span<pf_token> tokens_out) {
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  Reservation room(*sequence_, num_tokens);
  std::optional<Logits> logits;
  {
    const Timer timer(stats_.prefill_seconds);
    logits = prefill(engine_->target(), sequence_->block_table(), tokens_, sequence_->num_target_tokens(),
                     engine_->options().prefill_chunk, cancelled_);
  }
  if (!logits) {
    finish_ = PF_FINISH_CANCELLED;
    return 0;
  }
  stats_.num_prefilled_target = num_tokens - sequence_->num_target_tokens();
  engine_->workspace().draft.clear({0, 0}, 0);
  const size_t num_emitted = emit(*logits, accept(*logits), tokens_out);
  room.commit(num_tokens, sequence_->num_draft_tokens());
  return num_emitted;
}

size_t Request::round(std::span<pf_token> tokens_out) {
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  Draft& drafted = engine_->workspace().draft;
  drafted.clear(limits_of_round(), sequence_->num_draft_tokens());
  Reservation room(*sequence_, num_tokens + drafted.tree.limits().max_tokens);
  if (!draft(drafted)) {
    finish_ = PF_FINISH_CANCELLED;
    return 0;
  }
  Logits logits;
  {
    const Timer timer(stats_.verify_seconds);
    logits = verify(engine_->target(), sequence_->block_table(), num_tokens - 1, tokens_.back(), drafted.tree);
  }
  const Accepted accepted = accept(logits);
  const int32_t num_draft_cached = compact_caches(accepted);
  const size_t num_emitted = emit(logits, accepted, tokens_out);
  if (controller_ && drafted.tree.size() > 0) controller_->record(accepted.num_accepted > 0);
  ++stats_.num_rounds;
  stats_.num_drafted += drafted.tree.size();
  // Neither cache has the last token emitted.
  const auto num_kept = static_cast<int32_t>(tokens_.size()) - 1;
  room.commit(num_kept, std::min(num_draft_cached, num_kept));
  return num_emitted;
}

// Rows that the request asks for and the cache has room for, and no deeper than the output still needs besides the
// target's own token and the draft has positions for.
TreeLimits Request::limits_of_round() {
  if (shape_.depth() == 0) return {0, 0};
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  const int32_t most = std::min(max_tokens_ - num_tokens - 1, engine_->draft()->max_positions() - num_tokens);
  int32_t depth = std::clamp(most, 0, shape_.depth());
  if (controller_ && depth > 0) depth = controller_->limit(depth);
  if (depth == 0) return {0, 0};
  return {std::min(shape_.num_tokens(), sequence_->max_tokens() - num_tokens), depth};
}

bool Request::draft(Draft& out) {
  if (out.tree.limits().max_depth == 0) return true;
  const std::span<const int32_t> tokens(tokens_);
  if (stats_.num_prefilled_draft == 0) {
    const Timer timer(stats_.prefill_seconds);
    const auto num_before = static_cast<int32_t>(tokens.size()) - 1;
    if (!prefill(*engine_->draft(), sequence_->block_table(), tokens.first(num_before), out.num_cached,
                 engine_->options().prefill_chunk, cancelled_)) {
      return false;
    }
    stats_.num_prefilled_draft = num_before - out.num_cached;
    out.num_cached = num_before;
  }
  const Timer timer(stats_.draft_seconds);
  return engine_->drafter()->propose({.tokens = tokens,
                                      .shape = shape_,
                                      .temperatures = draft_temperatures_,
                                      .least_confidence = controller_ ? controller_->least_confidence() : 0,
                                      .block_table = sequence_->block_table(),
                                      .chooser = chooser_,
                                      .random = random_,
                                      .cancelled = cancelled_},
                                     out);
}

Accepted Request::accept(const Logits& target) {
  Workspace& workspace = engine_->workspace();
  const Verification verification{.tree = workspace.draft.tree,
                                  .target = target,
                                  .num_ids = engine_->num_ids(),
                                  .tokens = tokens_,
                                  .chooser = chooser_};
  if (chooser_.is_greedy()) return accept_greedy(verification);
  if (typical_.epsilon > 0) return accept_typical(verification, typical_, random_, workspace.distribution);
  return accept_sampled(verification, workspace.draft.distributions, random_, workspace.distribution);
}

// Moves the accepted path behind the sequence in both caches; returns how many tokens, path included, the draft's
// holds.
int32_t Request::compact_caches(const Accepted& accepted) {
  const Draft& drafted = engine_->workspace().draft;
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

size_t Request::emit(const Logits& target, const Accepted& accepted, std::span<pf_token> tokens_out) {
  const TokenTree& tree = engine_->workspace().draft.tree;
  const double seconds = seconds_between(opened_, Clock::now());
  const pf_origin last = tree.size() == 0                                                        ? PF_ORIGIN_PLAIN
                         : tree.next_child(accepted.last(), accepted.last()) == TokenTree::kNone ? PF_ORIGIN_BONUS
                                                                                                 : PF_ORIGIN_CORRECTED;
  int32_t num_emitted = 0;
  int32_t row = 0;
  while (num_emitted <= accepted.num_accepted && finish_ == PF_FINISH_NONE) {
    const bool is_drafted = num_emitted < accepted.num_accepted;
    const int32_t id = is_drafted ? tree[accepted.path[num_emitted]].id : accepted.next_id;
    tokens_out[num_emitted] = {.id = id,
                               .origin = is_drafted ? PF_ORIGIN_ACCEPTED : last,
                               .logprob = LogProbs(target.row(row))[id],
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
