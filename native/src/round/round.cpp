#include "round/round.h"

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>

#include "base/pass_limits.h"
#include "base/status.h"
#include "base/timer.h"
#include "model/shared_pass.h"

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
        num_left_(num_sharing_) {}

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

  // One pass of the target over what the next requests have drafted, as many of them as it has room for, or one round
  // of a device's. False if none is left.
  bool verify() {
    num_verified_ = 0;
    pass_.clear();
    while (next_ < steps_.size() && !steps_[next_].request->has_drafted()) ++next_;
    if (next_ == steps_.size()) return false;
    if (steps_[next_].request->chooses_on_device()) {
      gather_alike(steps_[next_]);
      run_on_device();
      return true;
    }
    for (; next_ < steps_.size(); ++next_) {
      const Request& request = *steps_[next_].request;
      if (request.has_drafted() && (request.chooses_on_device() || !add(steps_[next_]))) break;
    }
    if (num_verified_ == 0) return false;
    run_pass();
    return true;
  }

  // Of the requests that are verified: the tokens that the target agrees with, and the one that it puts after them.
  void accept() {
    for (Step* const step : verified()) attempt(*step, [&] { step->request->accept(); });
  }

  void emit() {
    for (Step* const step : verified()) attempt(*step, [&] { step->request->emit(); });
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

  template <typename Body>
  static void attempt(Step& step, Body&& body) {
    if (step.status != PF_OK) return;
    const pf_status status = guard(body);
    if (status != PF_OK) fail(step, status);
  }

  static void fail(Step& step, pf_status status) {
    step.status = status;
    step.request->fail_step(last_error());
  }

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

  // False if the pass is full.
  bool add(Step& step) {
    Request& request = *step.request;
    TreePass rows = request.rows_to_verify();
    if (!pass_.has_room(rows.num_rows(), rows.num_rows())) return false;
    first_rows_[num_verified_] = pass_.add(rows.at(request.block_table(), request.context()));
    verified_[num_verified_++] = &step;
    return true;
  }

  // Whoever shares a round of the device with `first`, or comes before it: all that draft nothing, or all that draft
  // from its source and have room for the longest of their chains. A round has no more rows for one than for another,
  // and where those do not suffice, all have shorter chains: that is sooner done than several rounds.
  void gather_alike(Step& first) {
    const auto chain_of = [](const Step& step) {
      return step.request->has_drafted() ? step.request->chain_to_share() : std::nullopt;
    };
    const auto own = chain_of(first);
    if (!own) return static_cast<void>(verified_[num_verified_++] = &first);
    const auto is_alike = [&](const auto& chain) {
      return chain && chain->source == own->source && (chain->num_drafted > 0) == (own->num_drafted > 0);
    };
    int32_t num_alike = 0, longest = 0;
    for (const Step& step : steps_) {
      const auto chain = chain_of(step);
      if (!is_alike(chain)) continue;
      ++num_alike;
      longest = std::max(longest, chain->num_drafted);
    }
    num_chained_ = std::min(longest, engine_.device_round()->most_drafted(num_alike));
    for (Step& step : steps_) {
      const auto chain = chain_of(step);
      if (is_alike(chain) && chain->most >= num_chained_) verified_[num_verified_++] = &step;
    }
  }

  void run_on_device() {
    if (num_verified_ == 1) return attempt(*verified_[0], [&] { verified_[0]->request->verify_on_device(); });
    std::vector<DeviceRound::Member>& members = engine_.workspace().members;
    members.clear();
    for (const Step* const step : verified()) members.push_back(step->request->member_of_round(num_chained_));
    std::span<const RoundOutcome> outcomes;
    const auto num_sharing = static_cast<int32_t>(num_verified_);
    const auto start = Timer::Clock::now();
    const pf_status status = guard([&] {
      if (num_chained_ > 0 && members[0].chain.source == Source::kHead) begin_heads();
      outcomes = engine_.device_round()->run_shared(members, num_chained_);
    });
    const double seconds = Timer::between(start, Timer::Clock::now());
    for (size_t i = 0; i < num_verified_; ++i) {
      Step& step = *verified_[i];
      const int32_t first_row = static_cast<int32_t>(i) * (num_chained_ + 1);
      if (status != PF_OK) {
        fail(step, status);
      } else {
        const Request::DeviceVerified shared{outcomes[i], first_row, num_sharing, num_chained_, seconds};
        attempt(step, [&] { step.request->verify_on_device(&shared); });
      }
    }
  }

  // Starts the first pass of all.
  void begin_heads() {
    std::vector<HeadBegin>& begins = engine_.workspace().head_begins;
    begins.clear();
    for (const Step* const step : verified()) begins.push_back(step->request->head_begin());
    engine_.head_drafter()->begin_on_device(begins);
  }

  void run_pass() {
    const bool reads_hidden =
        std::ranges::any_of(verified(), [](const Step* step) { return step->request->reads_hidden(); });
    Logits logits;
    const auto start = Timer::Clock::now();
    const pf_status status = guard([&] { logits = pass_.forward(engine_.target(), reads_hidden); });
    const double seconds = Timer::between(start, Timer::Clock::now());
    for (size_t i = 0; i < num_verified_; ++i) {
      Step& step = *verified_[i];
      if (status == PF_OK) {
        step.request->verify({logits, first_rows_[i], seconds});
      } else {
        fail(step, status);
      }
    }
  }

  std::span<Step* const> verified() const noexcept { return std::span(verified_).first(num_verified_); }

  Engine& engine_;
  const std::span<Step> steps_;
  const int32_t num_drafting_;  // requests that draft in this round
  const int32_t num_sharing_;   // of those, the ones that share passes
  int32_t num_left_;            // and have not planned yet
  int32_t num_prompts_ = 0;
  int32_t num_rows_ = 0;                     // planned so far, of the pass that they will be in
  std::array<Step*, kMostTogether> agreed_;  // on what they draft
  size_t num_agreed_ = 0;
  int32_t num_chained_ = 0;  // drafted tokens of the device's round
  size_t next_ = 0;          // step to verify
  SharedPass& pass_ = engine_.workspace().verified;
  std::array<Step*, kMostTogether> verified_;  // by the last pass
  std::array<int32_t, kMostTogether> first_rows_;
  size_t num_verified_ = 0;
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
