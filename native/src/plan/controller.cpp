#include "plan/controller.h"

#include <algorithm>
#include <array>

#include "device/chain_lengths.h"

namespace pilotfish {
namespace {

constexpr float kRememberedRounds = 20;

// Credit is counted in plain rounds. Rounds that draft earn or lose what they gain or lose; the others earn this.
constexpr double kEarned = 0.005;
constexpr double kEarnedInCompany = 0.0025;  // where each of those who share a pass looks by itself
constexpr double kMostCredit = 16;
constexpr double kMostRisked = 0.1;  // by one request, of the plain rounds that it would take
// Of the credit, by one round: a first one that comes to nothing leaves enough for a second one.
constexpr double kMostRiskedAtOnce = 0.5;

// Of a pass that others have rows in: an equal part of what it takes with one row of this request, and all that its
// further rows add.
double part_of(const PassCosts& pass, int32_t num_rows, int32_t num_other_rows, int32_t context, int32_t num_requests) {
  const double seconds = pass.at(num_other_rows + num_rows, context);
  if (num_requests == 1) return seconds;
  return seconds - (1 - 1.0 / num_requests) * pass.at(num_other_rows + 1, context);
}

float share_of(std::span<const TreeToken> found) {
  float share = 0;
  for (const TreeToken& token : found) share += token.depth == 1 ? token.prob : 0;
  return std::min(share, 1.0f);
}

}  // namespace

Controller::Controller(const RoundCosts& costs, DraftChoice choice, int32_t num_tokens, int32_t context)
    : costs_(costs),
      choice_(choice),
      most_risked_(kMostRisked * num_tokens),
      tokens_(1, 1, kRememberedRounds),
      cost_(1, 1, kRememberedRounds),
      credit_(std::min(DraftMemory::kFirstCredit, most_risked_)) {
  for (const Source source : {Source::kDraft, Source::kHead}) {
    if (choice.has(source)) tracks_.emplace_back(source, costs.of(source).value(), costs.verify, context);
  }
  guess_rate();
}

void Controller::guess_rate() noexcept {
  tokens_ = cost_ = DecayedRate(1, 1, kRememberedRounds);
  for (const SourceTrack& track : tracks_) {
    if ((1 + track.accepted()) / track.cost() <= tokens_.mean() / cost_.mean()) continue;
    tokens_ = DecayedRate(1 + track.accepted(), 1, kRememberedRounds);
    cost_ = DecayedRate(track.cost(), 1, kRememberedRounds);
  }
}

void Controller::recall(DraftMemory& memory) noexcept {
  for (SourceTrack& track : tracks_) {
    if (const std::optional<SourceTrack>& earlier = memory.of(track.source())) track = *earlier;
  }
  credit_ = std::min(memory.credit, most_risked_);
  memory.credit -= credit_;  // until it is given back, no other request spends it
  guess_rate();
}

void Controller::remember(DraftMemory& memory) const noexcept {
  memory.credit = std::min(memory.credit + credit_, kMostCredit);
  for (const SourceTrack& track : tracks_) memory.of(track.source()) = track;
}

RoundPlan Controller::plan(const RoundState& state) noexcept {
  context_ = state.num_tokens - 1;
  share_ = state.share;
  plain_seconds_ = verifying(1);
  most_drafted_ = state.most_drafted;
  rate_ = std::max(tokens_.mean() / cost_.mean(), 1.0f) / plain_seconds_;
  if (!choice_.is_auto || share_.chain) {
    planned_ = share_.chain ? shared_plan(state) : pinned_plan(state);
    begin_draft(planned_, state);
    return planned_;
  }
  Arm best{{.seconds = plain_seconds_}, 1 / plain_seconds_};
  const Arm lookup = lookup_arm(state);
  if (lookup.plan.num_lookup > 0 && (!choice_.plain || lookup.rate > best.rate)) best = lookup;
  const Arm draft = best_draft(state, best);
  const bool must = must_draft() && best.plan.num_lookup == 0;
  const bool is_probe = draft.plan.reason == RoundPlan::Reason::kProbe;
  if (draft.plan.num_draft > 0 && (must || is_probe || draft.rate > best.rate)) best = draft;
  begin_draft(best.plan, state);
  return planned_ = best.plan;
}

void Controller::begin_draft(const RoundPlan& plan, const RoundState& state) noexcept {
  if (plan.num_draft == 0) return;
  const Reach& reach = state.reach(plan.source);
  draft_context_ = reach.context + reach.num_behind;
  begin_context_ = reach.context;
  num_sharing_ = num_sharing(reach);
  risk_left_ = kMostRiskedAtOnce * (credit_ * plain_seconds_ - begin_seconds(*find_track(plan.source), state));
}

Controller::Arm Controller::lookup_arm(const RoundState& state) const noexcept {
  Arm best{{}, 0};
  float tokens = 1;
  const auto most = std::min<int32_t>(state.lookup.size(), choice_.lookup ? state.most_drafted : 0);
  for (int32_t i = 0; i < most; ++i) {
    tokens += state.lookup[i].path_prob;
    const double seconds = verifying(i + 2);
    if (tokens / seconds > best.rate) {
      best = {{.num_lookup = i + 1, .tokens = tokens, .seconds = seconds}, tokens / seconds};
    }
  }
  return best;
}

Controller::Arm Controller::best_draft(const RoundState& state, const Arm& without) noexcept {
  Arm best{{}, 0};
  for (SourceTrack& track : tracks_) {
    const Arm alone = draft_arm(track, state, {});
    if (alone.plan.num_draft == 0) continue;
    const bool is_worth = track.is_worth(alone.rate * plain_seconds_) || must_draft();
    const bool is_affordable = must_draft() || begin_seconds(track, state) <= credit_ * plain_seconds_;
    const bool is_probe = !is_worth && without.plan.num_lookup == 0 && track.is_probe_due(is_affordable);
    if (!is_probe && !(is_worth && is_affordable)) continue;
    Arm arm = draft_arm(track, state, without.plan);
    if (is_probe) arm.plan.reason = RoundPlan::Reason::kProbe;
    if (is_probe || arm.rate > best.rate) best = arm;
    if (is_probe) break;
  }
  return best;
}

Controller::Arm Controller::draft_arm(const SourceTrack& track, const RoundState& state,
                                      const RoundPlan& lookup) const noexcept {
  const Reach& reach = state.reach(track.source());
  if (reach.num_levels <= 0 || state.most_drafted <= 0) return {lookup, 0};
  if (choice_.fixes_chains) return chain_arm(track, state);
  const float left = 1 - share_of(state.lookup.first(lookup.num_lookup));
  const double base = lookup.num_lookup > 0 ? lookup.seconds : plain_seconds_;
  const double drafting = std::max(track.cost() - 1.0, 0.0) * plain_seconds_;
  const CatchUp catch_up = catching_up(track, state);
  RoundPlan plan{.source = track.source(), .num_draft = state.most_drafted, .num_levels = reach.num_levels};
  // Found tokens that are not worth a row by themselves may be so together with those that the source finds.
  if (choice_.lookup) plan.num_lookup = std::min<int32_t>(state.lookup.size(), state.most_drafted);
  plan.tokens = lookup.tokens + left * track.accepted();
  plan.seconds = base + drafting + catch_up.seconds;
  return {plan, plan.tokens / (base + drafting + catch_up.seconds_a_round)};
}

Controller::Arm Controller::chain_arm(const SourceTrack& track, const RoundState& state) const noexcept {
  const Reach& reach = state.reach(track.source());
  const CatchUp catch_up = catching_up(track, state);
  const float accepted = track.right();
  Arm best{{}, 0};
  float tokens = 1;
  float path = 1;
  int32_t depth = 0;
  for (const int32_t length : kChainLengths) {
    if (length > std::min({reach.num_levels, state.most_drafted, kLongestPlannedChain})) break;
    for (; depth < length; ++depth) tokens += path *= accepted;
    const double seconds = verifying(1 + length) + chaining(track, reach, length);
    const double rate = tokens / (seconds + catch_up.seconds_a_round);
    if (rate <= best.rate) continue;
    best = {{.source = track.source(),
             .num_draft = length,
             .num_levels = length,
             .tokens = tokens,
             .seconds = seconds + catch_up.seconds},
            rate};
  }
  return best;
}

double Controller::chaining(const SourceTrack& track, const Reach& reach, int32_t length) const noexcept {
  const int32_t context = reach.context + reach.num_behind, num_sharers = num_sharing(reach);
  const DraftCosts& costs = track.costs();
  if (num_sharers == 1) return costs.drafting(1, length, 1, context);
  return drafting(costs.begin, 1, context, num_sharers) +
         (length - costs.begin_levels) * drafting(costs.level, 1, context, num_sharers);
}

RoundPlan Controller::pinned_plan(const RoundState& state) const noexcept {
  RoundPlan plan{.reason = RoundPlan::Reason::kPinned};
  const int32_t most = std::min(choice_.limits.max_tokens, state.most_drafted);
  if (choice_.lookup) plan.num_lookup = std::min<int32_t>(state.lookup.size(), most);
  for (int32_t i = 0; i < plan.num_lookup; ++i) plan.tokens += state.lookup[i].path_prob;
  plan.seconds = verifying(1 + plan.num_lookup);
  if (tracks_.empty()) return plan;
  const SourceTrack& track = tracks_.front();
  plan.source = track.source();
  const Reach& reach = state.reach(plan.source);
  const int32_t num_left = choice_.is_tree ? most : most - plan.num_lookup;
  plan.num_levels = std::min(reach.num_levels, num_left);
  plan.num_draft = plan.num_levels > 0 ? num_left : 0;
  if (plan.num_draft <= 0) return plan;
  plan.tokens += track.accepted();
  plan.seconds = verifying(1 + std::min(plan.num_lookup + plan.num_draft, most)) +
                 track.costs().drafting(reach.num_behind, plan.num_levels, 1, reach.context);
  return plan;
}

// Where there is no room for a chain, none is drafted.
RoundPlan Controller::shared_plan(const RoundState& state) const noexcept {
  const SharedChain& chain = *share_.chain;
  RoundPlan plan{.source = chain.source, .seconds = plain_seconds_};
  const Reach& reach = state.reach(chain.source);
  const SourceTrack* const track = find_track(chain.source);
  if (track) plan.num_draft = std::max(std::min({chain.length, reach.num_levels, state.most_drafted}), 0);
  if (plan.num_draft == 0) return plan;
  plan.num_levels = plan.num_draft;
  plan.reason = chain.is_probe ? RoundPlan::Reason::kProbe : RoundPlan::Reason::kBest;
  float path = 1;
  for (int32_t depth = 0; depth < plan.num_draft; ++depth) plan.tokens += path *= track->right();
  plan.seconds =
      verifying(1 + chain.length) + chaining(*track, reach, chain.length) + catching_up(*track, state).seconds;
  return plan;
}

Sharer Controller::sharer(const RoundState& state) const noexcept {
  const auto outlook = [&](Source source) -> std::optional<Sharer::Outlook> {
    const SourceTrack* const track = find_track(source);
    const Reach& reach = state.reach(source);
    const int32_t most = std::min(reach.num_levels, state.most_drafted);
    if (!track || !reach.is_shared || most < 1) return std::nullopt;
    return Sharer::Outlook{track->right(), catching_up(*track, state).seconds, most, track->is_known()};
  };
  return {.draft = outlook(Source::kDraft),
          .head = outlook(Source::kHead),
          .num_remaining = state.num_remaining,
          .context = state.num_tokens - 1};
}

// What is read for the first time is there for all rounds that are left.
Controller::CatchUp Controller::catching_up(const SourceTrack& track, const RoundState& state) const noexcept {
  const Reach& reach = state.reach(track.source());
  const double usual = drafting(track.costs().begin, 1, reach.context, num_sharing(reach));
  const double seconds = std::max(begin_seconds(track, state) - usual, 0.0);
  return {seconds, seconds / std::max(state.num_remaining / (1 + track.accepted()), 1.0f)};
}

double Controller::verifying(int32_t num_rows) const noexcept {
  if (share_.chain) return costs_.verifying(share_.num_requests, num_rows, context_) / share_.num_requests;
  return part_of(costs_.verify, num_rows, share_.num_other_rows, context_, share_.num_requests);
}

double Controller::drafting(const PassCosts& pass, int32_t num_rows, int32_t context, int32_t num_sharing) noexcept {
  return part_of(pass, num_rows, num_sharing - 1, context, num_sharing);
}

double Controller::begin_seconds(const SourceTrack& track, const RoundState& state) const noexcept {
  const Reach& reach = state.reach(track.source());
  return drafting(track.costs().begin, reach.num_behind, reach.context, num_sharing(reach));
}

const SourceTrack* Controller::find_track(Source source) const noexcept {
  for (const SourceTrack& track : tracks_) {
    if (track.source() == source) return &track;
  }
  return nullptr;
}

double Controller::record(const RoundResult& result) noexcept {
  const auto num_tokens = static_cast<float>(result.accepted.size() + 1);
  const bool has_drafted = result.num_caught_up > 0;
  // A chain has rows in a shared round whether or not all of it was wanted.
  const bool is_shared = has_drafted && share_.chain;
  const double verified = verifying(1 + (is_shared ? share_.chain->length : static_cast<int32_t>(result.tree.size())));
  double seconds = verified;
  if (has_drafted) {
    SourceTrack& track = *find_track(planned_.source);
    const DraftCosts& costs = track.costs();
    double drafted = drafting(costs.begin, 1, begin_context_, result.num_sharing);
    seconds += drafting(costs.begin, result.num_caught_up, begin_context_, result.num_sharing) - drafted;
    for (const int32_t num_rows : result.level_rows) {
      drafted += drafting(costs.level, num_rows, draft_context_, result.num_sharing);
    }
    seconds += drafted;
    track.record_round(num_tokens - 1, (verified + drafted) / plain_seconds_);
    if (choice_.fixes_chains) {
      const auto num_right = static_cast<int32_t>(result.accepted.size());
      track.record_chain(num_right, std::min(num_right + 1, static_cast<int32_t>(result.tree.size())));
    }
    record_guesses(track.rates(), result);
  }
  const double cost = seconds / plain_seconds_;
  if (has_drafted && planned_.reason == RoundPlan::Reason::kProbe && num_tokens > cost) {
    find_track(planned_.source)->probe_again();
  }
  // Where all draft the same, SharedDrafting keeps the account.
  const double earned = share_.num_requests > 1 ? kEarnedInCompany : kEarned;
  if (!share_.chain) credit_ = std::min(credit_ + (has_drafted ? num_tokens - cost : earned), kMostCredit);
  tokens_.record(num_tokens);
  cost_.record(static_cast<float>(cost));
  return seconds;
}

void Controller::record_guesses(ConfidenceRates& rates, const RoundResult& result) noexcept {
  uint64_t accepted = 0;
  for (const int32_t index : result.accepted) accepted |= uint64_t{1} << index;
  for (size_t i = 0; i < result.tree.size(); ++i) {
    const TreeToken& token = result.tree[i];
    if (token.guess.rank == Guess::kNone) continue;
    const bool is_tried = token.parent == TokenTree::kRoot || (accepted >> token.parent & 1) != 0;
    if (is_tried) rates.record(token.guess, token.depth, (accepted >> i & 1) != 0);
  }
}

}  // namespace pilotfish
