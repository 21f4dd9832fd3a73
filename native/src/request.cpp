#include "request.h"

#include <algorithm>

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
      num_draft_tokens_(options.num_draft_tokens),
      max_new_tokens_(options.max_new_tokens),
      chooser_({options.temperature, options.top_k, options.top_p, options.min_p}, engine_->workspace().sampler),
      random_(options.seed),
      tokens_(ids.begin(), ids.end()),
      opened_(Clock::now()) {
  const int32_t max_context = engine_->max_context();
  engine_->check_ids(ids);
  if (num_draft_tokens_ > 0 && !engine_->draft()) {
    fail(PF_INVALID_ARGUMENT, "num_draft_tokens is ", num_draft_tokens_, ", but the bundle has no draft model");
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
  stats_.num_prompt_tokens = static_cast<int32_t>(ids.size());
  const std::lock_guard lock(engine_->mutex());
  sequence_.emplace(*engine_, max_tokens_);
}

Request::~Request() {
  const std::lock_guard lock(engine_->mutex());
  sequence_.reset();
}

size_t Request::step(std::span<pf_token> tokens_out, pf_finish& finish) {
  if (tokens_out.size() <= static_cast<size_t>(num_draft_tokens_)) {
    fail(PF_INVALID_ARGUMENT, "capacity is ", tokens_out.size(), ", a round needs ", num_draft_tokens_ + 1);
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
    logits =
        prefill(engine_->target(), sequence_->block_table(), tokens_, 0, engine_->options().prefill_chunk, cancelled_);
  }
  if (!logits) {
    finish_ = PF_FINISH_CANCELLED;
    return 0;
  }
  const size_t num_emitted = emit({}, *logits, accept({}, *logits), tokens_out);
  room.commit(num_tokens, 0);
  return num_emitted;
}

size_t Request::round(std::span<pf_token> tokens_out) {
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  const int32_t most_drafted = num_draft_tokens_of_round();
  Reservation room(*sequence_, num_tokens + most_drafted);
  if (!draft(most_drafted)) {
    finish_ = PF_FINISH_CANCELLED;
    return 0;
  }
  const TokenTree& tree = engine_->workspace().draft.tree;
  const int32_t num_drafted = tree.size();
  Logits logits;
  {
    const Timer timer(stats_.verify_seconds);
    logits = verify(engine_->target(), sequence_->block_table(), num_tokens - 1, tokens_.back(), tree);
  }
  const Accepted accepted = accept(tree.ids(), logits);
  const size_t num_emitted = emit(tree.ids(), logits, accepted, tokens_out);
  if (controller_ && num_drafted > 0) controller_->record(accepted.num_accepted > 0);
  ++stats_.num_rounds;
  stats_.num_drafted += num_drafted;
  // Neither cache has the last token emitted, and the draft's does not have the last one drafted.
  const auto num_kept = static_cast<int32_t>(tokens_.size()) - 1;
  const int32_t num_draft_cached =
      num_drafted == 0 ? sequence_->num_draft_tokens() : std::min(num_tokens + num_drafted - 1, num_kept);
  room.commit(num_kept, num_draft_cached);
  return num_emitted;
}

// As many as the request asks for, the output still needs besides the target's own token, and the draft has positions
// for.
int32_t Request::num_draft_tokens_of_round() {
  if (num_draft_tokens_ == 0) return 0;
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  const int32_t most = std::min(max_tokens_ - num_tokens - 1, engine_->draft()->max_positions() - num_tokens);
  const int32_t wanted = std::clamp(most, 0, num_draft_tokens_);
  return controller_ && wanted > 0 ? controller_->limit(wanted) : wanted;
}

bool Request::draft(int32_t num_draft_tokens) {
  Workspace& workspace = engine_->workspace();
  workspace.draft.tree.clear();
  if (num_draft_tokens == 0) return true;
  const std::span<const int32_t> tokens(tokens_);
  int32_t num_cached = sequence_->num_draft_tokens();
  if (num_cached == 0) {
    const Timer timer(stats_.prefill_seconds);
    num_cached = static_cast<int32_t>(tokens.size()) - 1;
    if (!prefill(*engine_->draft(), sequence_->block_table(), tokens.first(num_cached), 0,
                 engine_->options().prefill_chunk, cancelled_)) {
      return false;
    }
  }
  const Timer timer(stats_.draft_seconds);
  return engine_->drafter()->propose({.tokens = tokens,
                                      .block_table = sequence_->block_table(),
                                      .num_cached = num_cached,
                                      .num_tokens = num_draft_tokens,
                                      .least_confidence = controller_ ? controller_->least_confidence() : 0,
                                      .chooser = chooser_,
                                      .random = random_,
                                      .cancelled = cancelled_},
                                     workspace.draft);
}

Accepted Request::accept(std::span<const int32_t> drafted, const Logits& target) {
  if (chooser_.is_greedy()) return accept_greedy(drafted, target, engine_->num_ids(), tokens_, chooser_);
  Workspace& workspace = engine_->workspace();
  return accept_sampled(drafted, workspace.draft.distributions, target, engine_->num_ids(), tokens_, chooser_, random_,
                        workspace.distribution);
}

size_t Request::emit(std::span<const int32_t> drafted, const Logits& target, const Accepted& accepted,
                     std::span<pf_token> tokens_out) {
  const double seconds = seconds_between(opened_, Clock::now());
  const auto num_drafted = static_cast<int32_t>(drafted.size());
  const pf_origin last = num_drafted == 0                       ? PF_ORIGIN_PLAIN
                         : accepted.num_accepted == num_drafted ? PF_ORIGIN_BONUS
                                                                : PF_ORIGIN_CORRECTED;
  int32_t num_emitted = 0;
  while (num_emitted <= accepted.num_accepted && finish_ == PF_FINISH_NONE) {
    const bool is_drafted = num_emitted < accepted.num_accepted;
    const int32_t id = is_drafted ? drafted[num_emitted] : accepted.next_id;
    tokens_out[num_emitted] = {.id = id,
                               .origin = is_drafted ? PF_ORIGIN_ACCEPTED : last,
                               .logprob = log_prob(target.row(num_emitted), id),
                               .seconds = seconds};
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
