#include "plan/shared_drafting.h"

#include <algorithm>

#include "device/chain_lengths.h"
#include "plan/source_track.h"

namespace pilotfish {
namespace {

constexpr double kEarned = 0.005;  // by a round that does not draft
constexpr double kMostCredit = 16;
// Beyond the credit, by a trial that is expected to pay: of the plain rounds that are left, where the source is not
// known yet, and of those that it will save, where it is.
constexpr double kMostRisked = 0.01, kMostRiskedOfGain = 0.33;
constexpr int32_t kBeginRows = 2;  // of a source's first pass, about, of each

// The tokens that one of them may expect of a round, its own of the target included.
double tokens_of(const Sharer& sharer, const Sharer::Outlook& outlook, int32_t length) {
  double tokens = 1, path = 1;
  const int32_t most = std::min({length, outlook.most, sharer.num_remaining - 1});
  for (int32_t depth = 0; depth < most; ++depth) tokens += path *= outlook.accepted;
  return tokens;
}

int32_t mean_context(std::span<const Sharer> sharers) {
  int64_t sum = 0;
  for (const Sharer& sharer : sharers) sum += sharer.context;
  return static_cast<int32_t>(sum / static_cast<int64_t>(sharers.size()));
}

}  // namespace

// Of all requests together.
struct SharedDrafting::Option {
  SharedChain chain;
  double rate = 0;              // tokens a second
  double seconds = 0;           // of a round
  double catch_up_seconds = 0;  // before the first of them
  bool is_known = true;         // to each
};

SharedDrafting::Option SharedDrafting::option_of(const RoundCosts& costs, std::span<const Sharer> sharers,
                                                 int32_t num_plain, SharedChain chain) noexcept {
  const DraftCosts& source = *costs.of(chain.source);
  const auto num_sharers = static_cast<int32_t>(sharers.size());
  const int32_t context = mean_context(sharers);
  double tokens = num_plain, catching_up = 0, catching_up_a_round = 0;
  bool is_known = true;
  for (const Sharer& sharer : sharers) {
    const Sharer::Outlook& outlook = *sharer.of(chain.source);
    const double its_tokens = tokens_of(sharer, outlook, chain.length);
    tokens += its_tokens;
    is_known = is_known && outlook.is_known;
    catching_up += outlook.catch_up_seconds;
    catching_up_a_round += outlook.catch_up_seconds / std::max(sharer.num_remaining / its_tokens, 1.0);
  }
  const int32_t num_levels = std::max(chain.length - source.begin_levels, 0);
  const double plain = num_plain > 0 ? costs.verifying(num_plain, 1, context) : 0;
  const double seconds = plain + costs.verifying(num_sharers, 1 + chain.length, context) +
                         source.begin.at(kBeginRows * num_sharers, context) +
                         (num_levels > 0 ? num_levels * source.level.at(num_sharers, context) : 0);
  return {chain, tokens / (seconds + catching_up_a_round), seconds, catching_up, is_known};
}

SharedDrafting::Option SharedDrafting::best_option(const RoundCosts& costs, std::span<const Sharer> sharers,
                                                   int32_t num_plain, int32_t most_rows) noexcept {
  Option best;
  for (const Source source : {Source::kDraft, Source::kHead}) {
    if (!costs.of(source)) continue;
    if (!std::ranges::all_of(sharers, [&](const Sharer& each) { return each.of(source).has_value(); })) continue;
    int32_t room = 0;
    for (const Sharer& sharer : sharers) room = std::max(room, sharer.of(source)->most);
    const int32_t longest =
        std::min({room, kLongestPlannedChain, most_rows / static_cast<int32_t>(sharers.size()) - 1});
    for (const int32_t length : kChainLengths) {
      if (length > longest) break;
      const Option option = option_of(costs, sharers, num_plain, {.source = source, .length = length});
      if (option.rate > best.rate) best = option;
    }
  }
  return best;
}

SharedChain SharedDrafting::plan(const RoundCosts& costs, std::span<const Sharer> sharers, int32_t num_plain,
                                 int32_t most_rows) noexcept {
  planned_ = {};
  num_requests_ = static_cast<int32_t>(sharers.size()) + num_plain;
  num_plain_ = num_plain;
  const Option best = best_option(costs, sharers, num_plain, most_rows);
  if (best.chain.length == 0) return planned_;
  const double plain_seconds = costs.verifying(num_requests_, 1, mean_context(sharers));
  cost_ = (best.seconds + best.catch_up_seconds) / plain_seconds;
  const double speed = best.rate * plain_seconds / num_requests_;
  is_drafting_ = speed > (is_drafting_ ? 1 : kTakeUp);
  const bool is_probe = !is_drafting_ && rounds_without_ >= kProbeInterval;
  int32_t num_left = 0;
  for (const Sharer& sharer : sharers) num_left = std::max(num_left, sharer.num_remaining);
  const double most_risked = is_probe ? 0 : best.is_known ? kMostRiskedOfGain * (1 - 1 / speed) : kMostRisked;
  const double risk = credit_ + most_risked * num_left;
  if ((is_drafting_ || is_probe) && best.catch_up_seconds < risk * plain_seconds) {
    planned_ = best.chain;
    planned_.is_probe = is_probe;
  }
  rounds_without_ = planned_.length > 0 ? 0 : rounds_without_ + 1;
  return planned_;
}

void SharedDrafting::record(int32_t num_tokens) noexcept {
  const double gained = static_cast<double>(num_tokens + num_plain_) / num_requests_ - cost_;
  credit_ = std::min(credit_ + (planned_.length > 0 ? gained : kEarned), kMostCredit);
}

}  // namespace pilotfish
