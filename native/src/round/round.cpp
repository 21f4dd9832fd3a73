#include "round/round.h"

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>

#include "base/pass_limits.h"
#include "base/status.h"
#include "base/timer.h"
#include "round/verifier.h"

namespace pilotfish {
namespace {

// What the requests of a round have in common. A stage does nothing to a request that has not come through the stage
// before it, or has failed in it.
class Round {
 public:
  Round(Engine& engine, std::span<Step> steps)
      : engine_(engine),
        steps_(steps),
        num_drafting_(static_cast<int32_t>(
            std::ranges::count_if(steps, [](const Step& step) { return step.request->drafts_next(); }))),
        num_sharing_(static_cast<int32_t>(std::ranges::count_if(steps, shares))),
        num_left_(num_sharing_),
        verifier_(engine, steps) {}

  // While others decode, one chunk of one prompt runs a round: they do not wait for the whole of it.
  void prefill(Step& step) {
    Request& request = *step.request;
    num_left_ -= shares(step) ? 1 : 0;
    if (request.runs_prompt_next() && num_prompts_++ > 0 && num_drafting_ > 0) return request.skip_step();
    attempt(step, [&] {
      request.begin(step.tokens_out, static_cast<int32_t>(&step - steps_.data()));
      PromptPace& pace = engine_.prompt_pace();
      const bool holds_up = num_drafting_ > 0 && pace.is_bound();
      const pf_stats before = request.stats();
      request.prefill(step.in_chunks, holds_up ? pace.num_rows() : engine_.options().prefill_chunk);
      const int32_t num_rows = request.stats().num_prefilled_target - before.num_prefilled_target;
      if (holds_up && num_rows > 0) pace.record(num_rows, request.stats().prefill_seconds - before.prefill_seconds);
    });
  }

  // A row of each request that is still to plan will be in the pass at least.
  void plan(Step& step) {
    if (!step.request->shares_rounds()) return attempt(step, [&] { step.request->plan({}); });
    PassShare share = share_beside(num_rows_ + num_left_);
    if (decides_together()) share.chain = SharedChain{};  // until all have said what they would bring
    attempt(step, [&] { step.request->plan(share); });
    const int32_t num_rows = step.request->num_rows_expected();
    const bool is_full = num_rows_ + num_rows > max_verified_rows(engine_.options());
    num_rows_ = (is_full ? 0 : num_rows_) + num_rows;
  }

  // Requests that may draft or not, and share a device's rounds, draft all the same or nothing.
  void agree() {
    if (!decides_together()) return;
    std::vector<Sharer>& sharers = engine_.workspace().sharers;
    sharers.clear();
    int32_t num_plain = 0;
    for (Step& step : steps_) {
      const Sharer* const sharer = step.request->sharer();
      num_plain += !sharer && step.request->is_plain_on_device() ? 1 : 0;
      if (!sharer) continue;
      sharers.push_back(*sharer);
      agreed_[num_agreed_++] = &step;
    }
    if (sharers.empty()) return;
    const int32_t most_rows = max_verified_rows(engine_.options());
    const SharedChain chain = engine_.shared_drafting().plan(engine_.costs(), sharers, num_plain, most_rows);
    if (chain.length == 0) return;
    const auto num_sharers = static_cast<int32_t>(sharers.size());
    const int32_t num_other_rows = (num_sharers - 1) * (1 + chain.length);
    const PassShare share{.num_requests = num_sharers,
                          .num_other_rows = num_other_rows,
                          .most_rows = most_rows - num_other_rows,
                          .chain = chain};
    for (Step* const step : std::span(agreed_).first(num_agreed_)) {
      attempt(*step, [&] { step->request->replan(share); });
    }
  }

  // Each looks tokens up by itself; those that a model or head drafts are drafted together.
  void draft() {
    for (Step& step : steps_) attempt(step, [&] { step.request->draft(); });
    for (const Source source : {Source::kDraft, Source::kHead}) draft_by(source);
  }

  bool verify() { return verifier_.run_next(); }

  // Of the requests that are verified: the tokens that the target agrees with, and the one that it puts after them.
  void accept() {
    for (Step* const step : verifier_.verified()) attempt(*step, [&] { step->request->accept(); });
  }

  void emit() {
    for (Step* const step : verifier_.verified()) attempt(*step, [&] { step->request->emit(); });
  }

  // What it came to that all drafted the same.
  void settle() {
    if (num_agreed_ == 0) return;
    size_t num_tokens = 0;
    for (const Step* const step : std::span(agreed_).first(num_agreed_)) num_tokens += step->request->num_written();
    engine_.shared_drafting().record(static_cast<int32_t>(num_tokens));
  }

  void report() const {
    for (Step& step : steps_) {
      if (step.status != PF_OK) continue;
      step.num_tokens = step.request->num_written();
      step.finish = step.request->finish();
    }
  }

 private:
  PassShare share_beside(int32_t num_other_rows) const noexcept {
    return {.num_requests = std::max(num_sharing_, 1),
            .num_other_rows = num_other_rows,
            .most_rows = max_verified_rows(engine_.options()) - num_other_rows};
  }

  bool decides_together() const noexcept { return engine_.device_round() && num_sharing_ > 1; }
  static bool shares(const Step& step) { return step.request->drafts_next() && step.request->shares_rounds(); }

  void draft_by(Source source) {
    std::vector<Proposal>& proposals = engine_.workspace().proposals;
    proposals.clear();
    for (Step& step : steps_) {
      if (step.request->awaits(source)) proposals.push_back(step.request->proposal());
    }
    if (proposals.empty()) return;
    Drafter& drafter = engine_.drafter(source);
    const auto start = Timer::Clock::now();
    const pf_status status = guard([&] { drafter.propose(proposals, engine_.workspace().drafted); });
    const double seconds = Timer::between(start, Timer::Clock::now());
    const int32_t num_sharing = drafter.shares_passes() ? static_cast<int32_t>(proposals.size()) : 1;
    auto proposal = proposals.begin();
    for (Step& step : steps_) {
      if (!step.request->awaits(source)) continue;
      if (status != PF_OK) {
        fail(step, status);
        continue;
      }
      const Proposal& drafted = *proposal++;
      attempt(step, [&] {
        if (drafted.error) std::rethrow_exception(drafted.error);
        step.request->end_draft({drafted.is_cancelled, num_sharing, seconds});
      });
    }
  }

  Engine& engine_;
  const std::span<Step> steps_;
  const int32_t num_drafting_;  // requests that draft in this round
  const int32_t num_sharing_;   // of those, the ones that share passes
  int32_t num_left_;            // and have not planned yet
  int32_t num_prompts_ = 0;
  int32_t num_rows_ = 0;                     // planned so far, of the pass that they will be in
  std::array<Step*, kMostTogether> agreed_;  // on what they draft
  size_t num_agreed_ = 0;
  Verifier verifier_;
};

// This is the product. A request whose prompt has not run yet does that in place of drafting.
void run_round(Engine& engine, std::span<Step> steps) {
  Round round(engine, steps);
  for (Step& step : steps) {
    round.prefill(step);
    round.plan(step);
  }
  round.agree();
  round.draft();
  while (round.verify()) {
    round.accept();
    round.emit();
  }
  round.settle();
  round.report();
}

void check(std::span<const Step> steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    if (&steps[i].request->engine() != &steps[0].request->engine()) {
      fail(PF_INVALID_ARGUMENT, "request ", i, " is of another engine than request 0: they cannot share passes");
    }
    for (size_t j = 0; j < i; ++j) {
      if (steps[j].request == steps[i].request) fail(PF_INVALID_ARGUMENT, "request ", i, " is request ", j, " again");
    }
  }
}

}  // namespace

void run_rounds(std::span<Step> steps) {
  if (steps.empty()) return;
  check(steps);
  Engine& engine = steps[0].request->engine();
  const std::lock_guard lock(engine.mutex());
  const auto most = size_t(max_together(engine.options()));
  for (; !steps.empty(); steps = steps.subspan(std::min(most, steps.size()))) {
    run_round(engine, steps.first(std::min(most, steps.size())));
  }
}

}  // namespace pilotfish
