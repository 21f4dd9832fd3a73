// A world for the controller without models: a text whose tokens the draft and earlier text foresee with given
// probabilities, and passes that take given times. Time is counted, not measured.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "controller.h"

namespace simulation {

using pilotfish::Controller;
using pilotfish::DraftChoice;
using pilotfish::PassCosts;
using pilotfish::RoundCosts;
using pilotfish::RoundPlan;
using pilotfish::RoundState;
using pilotfish::Source;
using pilotfish::TokenTree;
using pilotfish::TreeToken;

// What a stretch of text is like.
struct Profile {
  double accepted;    // probability that the draft's next token is right
  double confidence;  // what the draft gives it on average
  double copied;      // probability that a position begins a passage that lookup foresees
  int32_t length;     // tokens of such a passage
};

struct Totals {
  int64_t num_tokens = 0;
  double seconds = 0;
  int64_t num_rounds = 0;
  int64_t num_draft_rounds = 0;
  int64_t num_lookup_rounds = 0;
  int64_t num_switches = 0;  // between rounds with and without the draft model

  double rate() const { return num_tokens / seconds; }
};

// Verification like that of a CPU (flat to 4 rows) or flat, and a draft step of `draft_step` plain passes.
inline RoundCosts costs(double draft_step, bool flat = false) {
  RoundCosts costs{.verify = {.rows = {1, 2, 4, 8, 16}, .contexts = {0, 1024}, .seconds = {}},
                   .draft = PassCosts{.rows = {1, 8, 128}, .contexts = {0, 1024}, .seconds = {}},
                   .is_measured = true};
  for (std::vector<double>& at_context : costs.verify.seconds) {
    at_context = flat ? std::vector<double>{1, 1.01, 1.02, 1.05, 1.1} : std::vector<double>{1, 1.04, 1.15, 1.5, 2.4};
  }
  for (std::vector<double>& at_context : costs.draft->seconds) {
    at_context = {draft_step, 2 * draft_step, 128 * std::max(0.09 * draft_step, 0.005)};
  }
  return costs;
}

class World {
 public:
  World(const RoundCosts& costs, DraftChoice choice, uint64_t seed, int32_t num_prompt_tokens = 64)
      : costs_(costs),
        choice_(choice),
        random_(seed),
        num_tokens_(num_prompt_tokens),
        controller_(costs, choice, 128, num_prompt_tokens) {}

  // Rounds until the text has grown by num_tokens.
  Totals run(const Profile& profile, int64_t num_tokens) {
    Totals totals;
    while (totals.num_tokens < num_tokens) round(profile, num_tokens - totals.num_tokens, totals);
    return totals;
  }

 private:
  static constexpr int32_t kMostDrafted = 8;

  // Far behind, the draft begins anew in the middle of the text.
  int32_t num_behind() const { return std::min(num_tokens_ - num_cached_, 128); }

  double uniform() { return std::uniform_real_distribution<double>()(random_); }

  void round(const Profile& profile, int64_t num_remaining, Totals& totals) {
    TokenTree found = look_up(profile);
    const int32_t most = static_cast<int32_t>(std::min<int64_t>(kMostDrafted, num_remaining - 1));
    const RoundPlan plan = controller_.plan({.num_tokens = num_tokens_,
                                             .most_drafted = most,
                                             .most_draft = choice_.draft ? most : 0,
                                             .num_draft_behind = num_behind(),
                                             .num_remaining = static_cast<int32_t>(num_remaining),
                                             .lookup = found.tokens()});
    TokenTree tree;
    std::array<bool, TokenTree::kMaxTokens> is_right{};
    int32_t last = TokenTree::kRoot;
    for (int32_t i = 0; i < plan.num_lookup; ++i) {
      last = tree.add(i, last, found[i].prob, Source::kLookup);
      is_right[last] = i < num_copied_;
    }
    const int32_t passes = plan.num_draft > 0 ? draft(profile, plan, tree, is_right) : 0;
    if (passes > 0 && choice_.num_tokens == DraftChoice::kAsManyAsPay) {
      tree.prune(controller_.num_worth(tree, passes));
    }
    finish(plan, passes, tree, is_right, totals);
  }

  // What the search would find: a chain, where the text is being copied or seems to be.
  TokenTree look_up(const Profile& profile) {
    TokenTree tree;
    if (num_copied_ == 0 && profile.copied > 0 && uniform() < profile.copied) num_copied_ = profile.length;
    if (num_copied_ == 0) return tree;
    int32_t last = TokenTree::kRoot;
    for (int32_t i = 0; i < kMostDrafted; ++i) last = tree.add(i, last, 0.9f, Source::kLookup);
    return tree;
  }

  // Beside what is looked up, from the root; returns the number of passes. A draft that is surer of a token is right
  // more often.
  int32_t draft(const Profile& profile, const RoundPlan& plan, TokenTree& tree, std::array<bool, 63>& is_right) {
    int32_t last = TokenTree::kRoot;
    bool right = plan.num_lookup == 0 || num_copied_ == 0;
    int32_t passes = 0;
    while (passes < plan.num_draft && !tree.is_full()) {
      const bool is_sure = uniform() < 0.5;
      const double spread = 0.5 * std::min(profile.confidence, 1 - profile.confidence);
      const double shift = 0.5 * std::min(profile.accepted, 1 - profile.accepted);
      right = right && uniform() < profile.accepted + (is_sure ? shift : -shift);
      const double confidence = profile.confidence + (is_sure ? spread : -spread);
      last = tree.add(100 + passes, last, static_cast<float>(confidence), Source::kDraft);
      is_right[last] = right;
      ++passes;
      if (tree[last].path_prob < plan.least_confidences[passes - 1]) break;
    }
    return passes;
  }

  void finish(const RoundPlan& plan, int32_t passes, const TokenTree& tree, const std::array<bool, 63>& is_right,
              Totals& totals) {
    std::vector<int32_t> accepted;
    for (int32_t i = 0; i < tree.size(); ++i) {
      const int32_t parent = accepted.empty() ? TokenTree::kRoot : accepted.back();
      if (is_right[i] && tree[i].parent == parent) accepted.push_back(i);
    }
    const int32_t behind = num_behind();
    totals.seconds += costs_.verify.at(1 + tree.size(), num_tokens_ - 1);
    if (passes > 0) {
      totals.seconds += costs_.draft->at(behind, num_tokens_) + (passes - 1) * costs_.draft->at(1, num_tokens_);
      num_cached_ = num_tokens_ + static_cast<int32_t>(accepted.size());
    }
    const auto num_emitted = static_cast<int32_t>(accepted.size()) + 1;
    controller_.record({tree.tokens(), accepted, passes, passes > 0 ? behind : 0});
    num_copied_ = std::max(0, num_copied_ - num_emitted);
    num_tokens_ += num_emitted;
    num_cached_ = std::min(num_cached_, num_tokens_ - 1);
    totals.num_tokens += num_emitted;
    ++totals.num_rounds;
    totals.num_lookup_rounds += plan.num_lookup > 0 ? 1 : 0;
    totals.num_draft_rounds += passes > 0 ? 1 : 0;
    totals.num_switches += (passes > 0) != did_draft_ ? 1 : 0;
    did_draft_ = passes > 0;
  }

  const RoundCosts& costs_;
  const DraftChoice choice_;
  std::mt19937_64 random_;
  int32_t num_tokens_;
  int32_t num_cached_ = 0;
  int32_t num_copied_ = 0;
  bool did_draft_ = false;
  Controller controller_;
};

}  // namespace simulation
