// A step of a request, alone or in the parts that a batch puts together.

#include <new>

#include "request.h"
#include "status.h"
#include "timer.h"

namespace pilotfish {
namespace {

// Counts what a part of a step takes besides the models' passes.
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

size_t Request::step(std::span<pf_token> tokens_out, pf_finish& finish) {
  const std::lock_guard lock(engine_->mutex());
  try {
    if (begin_step(tokens_out, {})) {
      const Clock::time_point start = Clock::now();
      const Logits logits = rows_to_verify().forward(engine_->target(), block_table(), context(), reads_hidden());
      end_round({logits, 0, Timer::between(start, Clock::now())});
    }
  } catch (...) {
    abandon_step();
    throw;
  }
  finish = finish_;
  return num_written_;
}

void Request::forget_step() noexcept {
  num_written_ = 0;
  report_.clear();
  last_step_ = {};
}

void Request::abandon_step() noexcept {
  room_.reset();
  forget_step();
}

bool Request::begin_step(std::span<pf_token> tokens_out, const Place& place) {
  forget_step();
  const int32_t most_tokens = speculation_.limits().max_depth + 1;
  if (tokens_out.size() < static_cast<size_t>(most_tokens)) {
    fail(PF_INVALID_ARGUMENT, "capacity is ", tokens_out.size(), ", a round needs ", most_tokens);
  }
  if (failed_) fail(PF_INVALID_ARGUMENT, "the request failed in an earlier step and can only be closed");
  if (finish_ == PF_FINISH_NONE && cancelled_) finish_ = PF_FINISH_CANCELLED;
  if (finish_ != PF_FINISH_NONE) return false;
  failed_ = true;  // until the step is through
  const WorkTimer timer(stats_);
  draft_ = place.draft;
  tokens_out_ = tokens_out;
  before_step_ = {.num_new_tokens = stats_.num_new_tokens, .num_accepted = stats_.num_accepted};
  if (stats_.num_new_tokens == 0) {
    num_written_ = echoes_ ? echo_prompt(tokens_out) : first_token(tokens_out, place.in_chunks);
  } else if (begin_round(place.share)) {
    return true;
  }
  finish_step();
  return false;
}

void Request::end_round(const Verified& pass) {
  stats_.verify_seconds += pass.seconds;
  const WorkTimer timer(stats_);
  Logits logits = pass.logits;
  logits.data = pass.logits.row(pass.first_row).data();
  logits.num_rows = draft().tree.size() + 1;
  finish_round({accept(logits), logits, {}, pass.first_row});
  finish_step();
}

void Request::finish_step() {
  last_step_ = {.num_tokens = num_written_,
                .num_new_tokens = stats_.num_new_tokens - before_step_.num_new_tokens,
                .num_accepted = stats_.num_accepted - before_step_.num_accepted};
  failed_ = false;
}

void Request::fail_step(const char* message) noexcept {
  abandon_step();
  try {
    error_ = message;
  } catch (const std::bad_alloc&) {
    error_.clear();
  }
}

}  // namespace pilotfish
