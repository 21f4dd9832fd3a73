#include "batch.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "model/shared_pass.h"
#include "options.h"
#include "status.h"
#include "timer.h"

namespace pilotfish {
namespace {

void check(std::span<const BatchStep> steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    if (&steps[i].request->engine() != &steps[0].request->engine()) {
      fail(PF_INVALID_ARGUMENT, "request ", i, " is of another engine than request 0: they cannot share passes");
    }
    for (size_t j = 0; j < i; ++j) {
      if (steps[j].request == steps[i].request) fail(PF_INVALID_ARGUMENT, "request ", i, " is request ", j, " again");
    }
  }
}

// Steps that share passes, as many at most as a pass has sequences.
class Batch {
 public:
  Batch(Engine& engine, std::span<BatchStep> steps) : engine_(engine), steps_(steps) { pass_.clear(); }

  // While others decode, one chunk of one prompt runs a step: they do not wait for the whole of it.
  void run() {
    auto num_left = static_cast<int32_t>(
        std::count_if(steps_.begin(), steps_.end(), [](const BatchStep& step) { return step.request->drafts_next(); }));
    const int32_t num_sharing = std::max(num_left, 1);
    const size_t most_prompts = num_left > 0 ? 1 : steps_.size();
    size_t num_prompts = 0;
    for (size_t i = 0; i < steps_.size(); ++i) {
      Request& request = *steps_[i].request;
      num_left -= request.drafts_next() ? 1 : 0;
      if (request.runs_prompt_next() && ++num_prompts > most_prompts) {
        request.skip_step();
        continue;
      }
      const PassShare share{.num_requests = num_sharing, .num_other_rows = pass_.num_rows() + num_left};
      bool must_verify = false;
      attempt(steps_[i],
              [&] { must_verify = request.begin_step(steps_[i].tokens_out, {static_cast<int32_t>(i), share, true}); });
      if (must_verify) add(i);
    }
    verify();
    for (BatchStep& step : steps_) {
      if (step.status != PF_OK) continue;
      step.num_tokens = step.request->num_written();
      step.finish = step.request->finish();
    }
  }

 private:
  template <typename Body>
  static void attempt(BatchStep& step, Body&& body) {
    step.status = guard(body);
    if (step.status != PF_OK) step.request->fail_step(last_error());
  }

  void add(size_t index) {
    TreePass rows = steps_[index].request->rows_to_verify();
    if (!pass_.has_room(rows.num_rows())) verify();
    first_rows_[num_waiting_] =
        pass_.add(rows.at(steps_[index].request->block_table(), steps_[index].request->context()));
    waiting_[num_waiting_++] = index;
  }

  // One pass over all rows that wait for it.
  void verify() {
    if (num_waiting_ == 0) return;
    const auto waiting = std::span(waiting_).first(num_waiting_);
    const bool reads_hidden = std::ranges::any_of(waiting, [&](size_t i) { return steps_[i].request->reads_hidden(); });
    Logits logits;
    const auto start = Timer::Clock::now();
    const pf_status status = guard([&] { logits = pass_.forward(engine_.target(), reads_hidden); });
    const double seconds = Timer::between(start, Timer::Clock::now());
    for (size_t i = 0; i < waiting.size(); ++i) {
      BatchStep& step = steps_[waiting[i]];
      if (status != PF_OK) {
        step.status = status;
        step.request->fail_step(last_error());
        continue;
      }
      attempt(step, [&] { step.request->end_round({logits, first_rows_[i], seconds}); });
    }
    num_waiting_ = 0;
    pass_.clear();
  }

  Engine& engine_;
  const std::span<BatchStep> steps_;
  SharedPass& pass_ = engine_.workspace().shared_pass;
  std::array<size_t, kMostTogether> waiting_;  // indices of steps
  std::array<int32_t, kMostTogether> first_rows_;
  size_t num_waiting_ = 0;
};

}  // namespace

void step_together(std::span<BatchStep> steps) {
  if (steps.empty()) return;
  check(steps);
  Engine& engine = steps[0].request->engine();
  const std::lock_guard lock(engine.mutex());
  const auto most = size_t(max_together(engine.options()));
  for (; !steps.empty(); steps = steps.subspan(std::min(most, steps.size()))) {
    Batch(engine, steps.first(std::min(most, steps.size()))).run();
  }
}

}  // namespace pilotfish
