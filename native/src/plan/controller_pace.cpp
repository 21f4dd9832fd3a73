// How far a tree is drafted while it grows, and how many of its tokens are worth a row: time is worth the tokens that
// it gives on average (Dinkelbach, "On nonlinear fractional programming", 1967).

#include <algorithm>
#include <array>
#include <functional>

#include "plan/controller.h"

namespace pilotfish {
namespace {

// Children of a token that a further level is expected to give.
constexpr int32_t kForeseenChildren = 3;

}  // namespace

Controller::Rows Controller::rows_worth(std::span<float> path_probs) const noexcept {
  std::sort(path_probs.begin(), path_probs.end(), std::greater<>());
  Rows best{0, 0};
  double tokens = 0;
  const auto most = std::min<int32_t>(path_probs.size(), most_drafted_);
  for (int32_t i = 0; i < most; ++i) {
    tokens += path_probs[i];
    const double seconds = verifying(i + 2) - plain_seconds_;
    const double gain = tokens - rate_ * seconds;
    if (gain > best.gain) best = {i + 1, gain};
  }
  return best;
}

int32_t Controller::num_continued(const TokenTree& tree, std::span<const int32_t> level) noexcept {
  const SourceTrack& track = *find_track(planned_.source);
  std::array<float, TokenTree::kMaxTokens * (1 + kForeseenChildren)> probs;
  const auto gain_with = [&](size_t num_continued) {
    size_t size = 0;
    for (const TreeToken& token : tree.tokens()) probs[size++] = token.path_prob;
    for (const int32_t index : level.first(num_continued)) {
      for (int32_t rank = 0; rank < kForeseenChildren; ++rank) {
        probs[size++] = tree[index].path_prob * track.rates().mean(rank);
      }
    }
    return rows_worth({probs.data(), size}).gain;
  };
  const double without = gain_with(0);
  double best_gain = 0;
  double best_seconds = 0;
  size_t best = 0;
  for (size_t num_continued = 1;; num_continued = std::min(2 * num_continued, level.size())) {
    const double seconds =
        drafting(track.costs().level, static_cast<int32_t>(num_continued), draft_context_, num_sharing_);
    if (choice_.plain && seconds > risk_left_) break;
    const double gain = gain_with(num_continued) - without - rate_ * seconds;
    if (gain > best_gain) {
      best_gain = gain;
      best_seconds = seconds;
      best = num_continued;
    }
    if (num_continued == level.size()) break;
  }
  risk_left_ -= best_seconds;
  return static_cast<int32_t>(best);
}

int32_t Controller::num_worth(const TokenTree& tree) const noexcept {
  std::array<float, TokenTree::kMaxTokens> probs;
  for (int32_t i = 0; i < tree.size(); ++i) probs[i] = tree[i].path_prob;
  return rows_worth({probs.data(), size_t(tree.size())}).num_tokens;
}

}  // namespace pilotfish
