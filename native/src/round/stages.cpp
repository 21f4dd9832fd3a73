// The stages of a step.

#include <algorithm>
#include <array>

#include "base/status.h"
#include "base/timer.h"
#include "round/device_outcome.h"
#include "round/request.h"

namespace pilotfish {
namespace {

bool contains(std::span<const int32_t> ids, int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

// Counts what a stage takes besides the models' passes.
class WorkTimer {
 public:
  explicit WorkTimer(pf_stats& stats) : stats_(stats), passes_before_(passes()) {}
  WorkTimer(WorkTimer&&) = delete;
  ~WorkTimer() { stats_.other_seconds += Timer::between(start_, Timer::Clock::now()) - (passes() - passes_before_); }

 private:
  double passes() const { return stats_.prefill_seconds + stats_.draft_seconds + stats_.verify_seconds; }

  pf_stats& stats_;
  const double passes_before_;
  const Timer::Clock::time_point start_ = Timer::Clock::now();
};

}  // namespace

void Request::begin(std::span<pf_token> tokens_out, int32_t draft) {
  forget_step();
  const int32_t most_tokens = speculation_.limits().max_depth + 1;
  if (tokens_out.size() < static_cast<size_t>(most_tokens)) {
    fail(PF_INVALID_ARGUMENT, "capacity is ", tokens_out.size(), ", a round needs ", most_tokens);
  }
  if (failed_) fail(PF_INVALID_ARGUMENT, "the request failed in an earlier step and can only be closed");
  if (finish_ == PF_FINISH_NONE && cancelled_) finish_ = PF_FINISH_CANCELLED;
  if (finish_ != PF_FINISH_NONE) return;
  failed_ = true;  // until the step is through
  draft_ = draft;
  tokens_out_ = tokens_out;
  before_step_ = {.num_new_tokens = stats_.num_new_tokens, .num_accepted = stats_.num_accepted};
  stage_ = Stage::kBegun;
}

void Request::prefill(bool in_chunks, int32_t most_rows) {
  if (stage_ != Stage::kBegun || stats_.num_new_tokens > 0) return;
  const WorkTimer timer(stats_);
  num_written_ = echoes_ ? echo_prompt() : first_token(in_chunks, most_rows);
  finish_step();
}

void Request::plan(const PassShare& share) {
  if (stage_ != Stage::kBegun) return;
  const WorkTimer timer(stats_);
  speculation_.plan(tokens_, room_of_round(), share, drafted());
  room_.emplace(*sequence_, static_cast<int32_t>(tokens_.size()) + num_slots(drafted()));
  stage_ = Stage::kPlanned;
}

void Request::replan(const PassShare& share) {
  if (stage_ != Stage::kPlanned) return;
  stage_ = Stage::kBegun;
  room_.reset();
  plan(share);
}

// A device goes on by itself from where its draft model or head has read the sequence.
void Request::draft() {
  if (stage_ != Stage::kPlanned) return;
  const WorkTimer timer(stats_);
  const bool goes_on = drafts_on_device() ? speculation_.prepare_chain(round_so_far(), drafted(), stats_)
                                          : speculation_.draft(round_so_far(), drafted(), stats_);
  if (!goes_on) return cancel_step();
  stage_ = !drafts_on_device() && speculation_.awaits() ? Stage::kDrafting : Stage::kDrafted;
  if (stage_ == Stage::kDrafted) fit_to_slots();
}

void Request::end_draft(const Drafted& outcome) {
  stats_.draft_seconds += outcome.seconds;
  const WorkTimer timer(stats_);
  if (outcome.is_cancelled) return cancel_step();
  speculation_.end_draft(drafted(), outcome.num_sharing);
  stage_ = Stage::kDrafted;
  fit_to_slots();
}

void Request::verify(const Verified& pass) {
  stats_.verify_seconds += pass.seconds;
  Logits logits = pass.logits;
  logits.num_rows = num_rows_to_verify();
  verdict_.emplace(Verdict{.accepted = {}, .logits = logits, .logprobs = {}, .first_row = pass.first_row});
  stage_ = Stage::kVerified;
}

void Request::verify_on_device(const DeviceVerified* shared) {
  if (shared) count_seconds(shared->outcome, planned_chain().source, shared->seconds);  // which this has not waited for
  const WorkTimer timer(stats_);
  if (shared) {
    verdict_.emplace(take_part_of(*shared));
  } else {
    verdict_.emplace(drafts_on_device() ? draft_and_verify_on_device() : verify_drafted_on_device());
  }
  ++stats_.num_device_rounds;
  stage_ = Stage::kVerified;
}

void Request::verify_on_device(const SharedVerified& shared) {
  const Accepted accepted = pilotfish::accepted_of(shared.outcome, drafted().tree, chooser_, shared.first_row);
  const auto logprobs = std::span(shared.outcome.logprobs).subspan(shared.first_row, num_rows_to_verify());
  verdict_.emplace(
      Verdict{.accepted = accepted, .logits = std::nullopt, .logprobs = logprobs, .first_row = shared.first_row});
  stats_.verify_seconds += shared.seconds;
  ++stats_.num_device_rounds;
  stage_ = Stage::kVerified;
}

void Request::accept() {
  if (stage_ != Stage::kVerified) return;
  const WorkTimer timer(stats_);
  if (verdict_->logits) verdict_->accepted = accepted_of(*verdict_->logits);
  stage_ = Stage::kAccepted;
}

void Request::emit() {
  if (stage_ != Stage::kAccepted) return;
  const WorkTimer timer(stats_);
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  const Draft& draft = drafted();
  const int32_t num_draft_cached = compact_caches(verdict_->accepted);
  num_written_ = emit_tokens(*verdict_, tokens_out_);
  if (speculation_.reads_hidden()) observe(*verdict_, static_cast<int32_t>(num_written_));
  ++stats_.num_rounds;
  stats_.num_drafted += draft.tree.size();
  stats_.num_failed_drafts += draft.is_broken ? 1 : 0;
  // Neither cache has the last token emitted.
  const auto num_kept = static_cast<int32_t>(tokens_.size()) - 1;
  speculation_.record(draft, verdict_->accepted, std::span<const int32_t>(tokens_).subspan(num_tokens),
                      std::min(num_draft_cached, num_kept), stats_);
  room_->commit(num_kept, speculation_.num_draft_retained());
  room_.reset();
  finish_step();
}

void Request::forget_step() noexcept {
  num_written_ = 0;
  report_.clear();
  last_step_ = {};
  verdict_.reset();
  stage_ = Stage::kNone;
}

void Request::cancel_step() {
  finish_ = PF_FINISH_CANCELLED;
  room_.reset();
  finish_step();
}

void Request::finish_step() {
  last_step_ = {.num_tokens = num_written_,
                .num_new_tokens = stats_.num_new_tokens - before_step_.num_new_tokens,
                .num_accepted = stats_.num_accepted - before_step_.num_accepted};
  failed_ = false;
  stage_ = Stage::kNone;
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

Accepted Request::accepted_of(const Logits& target) {
  Workspace& workspace = engine_->workspace();
  const Verification verification{
      .tree = drafted().tree, .target = target, .num_ids = engine_->num_ids(), .tokens = tokens_, .chooser = chooser_};
  if (typical_.epsilon > 0) return accept_typical(verification, typical_, workspace.distribution);
  if (speculation_.draws()) {
    return accept_rejection(verification, drafted().distributions, random_, workspace.distribution);
  }
  return accept_equal(verification);
}

// Moves the accepted path behind the sequence in both caches, whose rows lie among those of rejected tokens; returns
// how many tokens, path included, the draft's holds.
int32_t Request::compact_caches(const Accepted& accepted) {
  const Draft& draft = drafted();
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  const std::span<const int32_t> path(accepted.path.data(), accepted.num_accepted);
  engine_->target().cache().compact(sequence_->block_table(), num_tokens, path);
  if (draft.num_cached < num_tokens) return draft.num_cached;
  std::array<int32_t, TokenTree::kMaxTokens> rows;  // counted, as path is, from the token after the sequence
  int32_t num_rows = 0;
  for (const int32_t index : path) {
    if (draft.tree[index].draft_row == 0) break;
    rows[num_rows++] = draft.tree[index].draft_row - 1;
  }
  if (num_rows > 0) {
    engine_->draft()->cache().compact(sequence_->block_table(), num_tokens, {rows.data(), size_t(num_rows)});
  }
  return num_tokens + num_rows;
}

size_t Request::emit_tokens(const Verdict& verdict, std::span<pf_token> tokens_out) {
  const Accepted& accepted = verdict.accepted;
  const TokenTree& tree = drafted().tree;
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
