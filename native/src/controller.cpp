#include "controller.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace pilotfish {
namespace {

constexpr float kGuessedAcceptance = 0.6f;  // of a token of the draft model, until some were seen
constexpr float kGuessedRounds = 2;
constexpr int32_t kMostGuessed = 8;
constexpr float kRememberedRounds = 20;
constexpr float kGuessedTokens = 2;
constexpr float kRememberedTokens = 40;
constexpr float kNextConfidence = 0.6f;  // of a token that is not drafted yet
constexpr float kMostOfAccepted = 2.5f;  // tokens drafted at most, by those accepted lately; and one
constexpr int32_t kRowsForSlope = 5;

constexpr double kTakeUp = 1.04;  // how much faster than plain an idle draft must seem to be taken up again
constexpr int32_t kFirstProbe = 16;
constexpr int32_t kMostProbeRounds = 256;
constexpr int32_t kRoundsAProbe = 3;

// Credit, as a share of the time of plain decoding: of what is to be generated at first, and of what was later.
constexpr double kFirstCredit = 0.016;
constexpr int32_t kLeastCreditedTokens = 64;
constexpr int32_t kMostCreditedTokens = 512;
constexpr double kCreditARound = 0.008;
constexpr double kMostCredit = 8;  // plain rounds

// Rounds over which the catching up of a draft's cache is spread.
constexpr float kMostAmortised = 64;

}  // namespace

Controller::Controller(const RoundCosts& costs, DraftChoice choice, int32_t num_tokens, int32_t context) noexcept
    : costs_(costs),
      choice_(choice),
      draft_accepted_(0, kGuessedRounds, kRememberedRounds),
      draft_cost_(1, kGuessedRounds, kRememberedRounds),
      hits_{DecayedRate(kGuessedAcceptance, kGuessedTokens, kRememberedTokens),
            DecayedRate(kGuessedAcceptance, kGuessedTokens, kRememberedTokens)},
      confidences_(hits_),
      probe_interval_(kFirstProbe) {
  const double plain = costs.verify.at(1, context);
  credit_ = kFirstCredit * std::clamp(num_tokens, kLeastCreditedTokens, kMostCreditedTokens) * plain;
  if (choice.draft) guess_draft(plain, context);
}

void Controller::guess_draft(double plain, int32_t context) noexcept {
  double best_rate = 0;
  float tokens = 1;
  float path = 1;
  for (int32_t num_drafted = 1; num_drafted <= kMostGuessed; ++num_drafted) {
    tokens += path *= kGuessedAcceptance;
    const double seconds = costs_.verify.at(1 + num_drafted, context) + num_drafted * costs_.draft->at(1, context);
    if (tokens / seconds <= best_rate) break;
    best_rate = tokens / seconds;
    draft_accepted_ = DecayedRate(tokens - 1, kGuessedRounds, kRememberedRounds);
    draft_cost_ = DecayedRate(static_cast<float>(seconds / plain), kGuessedRounds, kRememberedRounds);
  }
  is_drafting_ = best_rate * plain > 1;
}

RoundPlan Controller::plan(const RoundState& state) noexcept {
  context_ = state.num_tokens - 1;
  plain_seconds_ = costs_.verify.at(1, context_);
  if (choice_.num_tokens != DraftChoice::kAsManyAsPay) return planned_ = pinned_plan(state);
  const Arm plain{{.seconds = plain_seconds_}, 1 / plain_seconds_};
  const Arm lookup = lookup_arm(state);
  Arm best = plain;
  if (lookup.plan.num_lookup > 0 && (!choice_.plain || lookup.rate > best.rate)) best = lookup;
  if (!choice_.draft || state.most_draft <= 0) return planned_ = best.plan;

  const Arm draft = draft_arm(state, {});
  is_drafting_ = !choice_.plain || draft.rate > (is_drafting_ ? 1 : kTakeUp) * plain.rate;
  // The first trial has to be affordable: nothing is known yet about this text.
  const bool is_too_dear = choice_.plain && !has_drafted_ && !can_lose(draft);
  const bool is_probe = !is_drafting_ && best.plan.num_lookup == 0 && is_probe_due(draft);
  if ((is_drafting_ && !is_too_dear) || is_probe) {
    const Arm both = draft_arm(state, lookup.plan);
    for (const Arm& arm : {draft, both}) {
      const bool is_better = arm.rate > best.rate || (is_probe && best.plan.num_lookup == 0);
      const bool must = !choice_.plain && best.plan.num_lookup + best.plan.num_draft == 0;
      if (must || is_better) best = arm;
    }
    if (is_probe && best.plan.num_draft > 0) best.plan.reason = RoundPlan::Reason::kProbe;
  }
  return planned_ = best.plan;
}

Controller::Arm Controller::lookup_arm(const RoundState& state) const noexcept {
  Arm best{{}, 0};
  float tokens = 1;
  const auto most = std::min<int32_t>(state.lookup.size(), choice_.lookup ? state.most_drafted : 0);
  for (int32_t i = 0; i < most; ++i) {
    tokens += state.lookup[i].path_prob;
    const double seconds = costs_.verify.at(i + 2, context_);
    if (tokens / seconds > best.rate) {
      best = {{.num_lookup = i + 1, .tokens = tokens, .seconds = seconds}, tokens / seconds};
    }
  }
  return best;
}

Controller::Arm Controller::draft_arm(const RoundState& state, const RoundPlan& lookup) const noexcept {
  float left = 1;  // probability that none of the first looked-up tokens is the next one
  for (int32_t i = 0; i < lookup.num_lookup; ++i) {
    if (state.lookup[i].depth == 1) left -= state.lookup[i].prob;
  }
  const float accepted = draft_accepted_.mean();
  const double base = lookup.num_lookup > 0 ? lookup.seconds : plain_seconds_;
  const double drafting = (draft_cost_.mean() - 1) * plain_seconds_;
  const double catching_up =
      std::max(costs_.draft->at(state.num_draft_behind, context_) - costs_.draft->at(1, context_), 0.0);
  const double num_rounds = std::clamp(state.num_remaining / (1 + accepted), 1.0f, kMostAmortised);
  RoundPlan plan = lookup;
  const auto deepest = static_cast<int32_t>(std::lround(1 + kMostOfAccepted * accepted));
  plan.num_draft = std::min({state.most_draft, state.most_drafted - lookup.num_lookup, deepest});
  plan.tokens = lookup.tokens + std::max(left, 0.0f) * accepted;
  plan.seconds = base + drafting + catching_up;
  const double rate = plan.tokens / (base + drafting + catching_up / num_rounds);
  if (plan.num_draft <= 0) return {lookup, 0};
  // Another token pays if it is accepted more often than its time would give tokens otherwise.
  const double own_rate = std::max((1 + accepted) / (draft_cost_.mean() * plain_seconds_), 1 / plain_seconds_);
  const double row = (costs_.verify.at(kRowsForSlope, context_) - plain_seconds_) / (kRowsForSlope - 1);
  const double token = costs_.draft->at(1, context_) + row;
  double least = own_rate * token / kNextConfidence;
  for (size_t depth = 0; depth < plan.least_confidences.size(); ++depth) {
    least /= std::max(optimism(static_cast<int32_t>(depth)), 1e-6f);
    plan.least_confidences[depth] = static_cast<float>(least);
  }
  return {plan, rate};
}

RoundPlan Controller::pinned_plan(const RoundState& state) const noexcept {
  RoundPlan plan{.reason = RoundPlan::Reason::kPinned};
  const int32_t most = std::min(choice_.num_tokens, state.most_drafted);
  if (choice_.lookup) plan.num_lookup = std::min<int32_t>(state.lookup.size(), most);
  if (choice_.draft) plan.num_draft = std::min(state.most_draft, most - plan.num_lookup);
  plan.num_draft = std::max(plan.num_draft, 0);
  for (int32_t i = 0; i < plan.num_lookup; ++i) plan.tokens += state.lookup[i].path_prob;
  if (plan.num_draft > 0) plan.tokens += draft_accepted_.mean();
  plan.seconds = costs_.verify.at(1 + plan.num_lookup + plan.num_draft, context_);
  if (plan.num_draft > 0) plan.seconds += plan.num_draft * costs_.draft->at(1, context_);
  return plan;
}

bool Controller::is_probe_due(const Arm& draft) noexcept {
  if (probe_rounds_left_ > 0) {
    --probe_rounds_left_;
    return true;
  }
  if (++rounds_without_ < probe_interval_ || !can_lose(draft)) return false;
  rounds_without_ = 0;
  probe_interval_ = std::min(2 * probe_interval_, kMostProbeRounds);
  probe_rounds_left_ = kRoundsAProbe - 1;
  return true;
}

bool Controller::can_lose(const Arm& arm) const noexcept { return arm.plan.seconds - plain_seconds_ <= credit_; }

float Controller::optimism(int32_t depth) const noexcept {
  const auto i = std::min<size_t>(depth, hits_.size() - 1);
  return hits_[i].mean() / std::max(confidences_[i].mean(), 1e-6f);
}

int32_t Controller::num_worth(const TokenTree& tree, int32_t num_draft_passes) const noexcept {
  std::array<float, TokenTree::kMaxTokens> probs;
  for (int32_t i = 0; i < tree.size(); ++i) {
    const TreeToken& token = tree[i];
    const float prob =
        token.source == Source::kDraft ? std::min(token.prob * optimism(token.depth - 1), 1.0f) : token.prob;
    probs[i] = token.parent == TokenTree::kRoot ? prob : prob * probs[token.parent];
  }
  std::sort(probs.begin(), probs.begin() + tree.size(), std::greater<>());
  const double spent = num_draft_passes > 0 ? num_draft_passes * costs_.draft->at(1, context_) : 0;
  float tokens = 1;
  int32_t best = 0;
  double best_rate = 1 / (plain_seconds_ + spent);
  for (int32_t i = 0; i < tree.size(); ++i) {
    tokens += probs[i];
    const double rate = tokens / (costs_.verify.at(i + 2, context_) + spent);
    if (rate > best_rate) {
      best_rate = rate;
      best = i + 1;
    }
  }
  return best;
}

void Controller::record(const RoundResult& result) noexcept {
  const auto num_accepted = static_cast<int32_t>(result.accepted.size());
  const double verifying = costs_.verify.at(1 + static_cast<int32_t>(result.tree.size()), context_);
  has_drafted_ = has_drafted_ || result.num_draft_passes > 0;
  if (result.num_draft_passes == 0) {
    credit_ += kCreditARound * verifying;
  } else {
    const double pass = costs_.draft->at(1, context_);
    const double drafting = result.num_draft_passes * pass;
    const double catching_up = costs_.draft->at(result.num_caught_up, context_) - pass;
    if (planned_.num_lookup == 0) {
      draft_accepted_.record(static_cast<float>(num_accepted));
      draft_cost_.record(static_cast<float>((verifying + drafting) / plain_seconds_));
      credit_ += (num_accepted + 1) * plain_seconds_ - verifying - drafting - catching_up;
    }
  }
  credit_ = std::min(credit_, kMostCredit * plain_seconds_);
  record_depths(result);
  if (is_drafting_) probe_interval_ = kFirstProbe;
}

void Controller::record_depths(const RoundResult& result) noexcept {
  uint64_t accepted = 0;
  for (const int32_t index : result.accepted) accepted |= uint64_t{1} << index;
  for (size_t i = 0; i < result.tree.size(); ++i) {
    const TreeToken& token = result.tree[i];
    if (token.source != Source::kDraft) continue;
    if (token.parent != TokenTree::kRoot && !(accepted >> token.parent & 1)) continue;
    const auto depth = std::min<size_t>(token.depth - 1, hits_.size() - 1);
    hits_[depth].record(accepted >> i & 1 ? 1.0f : 0.0f);
    confidences_[depth].record(token.prob);
  }
}

}  // namespace pilotfish
