// A world for the controller without models: a text whose tokens the draft and
// earlier text foresee with given probabilities, and passes that take given
// times. Time is counted, not measured.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "plan/controller.h"

namespace simulation {

using pilotfish::Controller;
using pilotfish::DraftChoice;
using pilotfish::DraftCosts;
using pilotfish::Guess;
using pilotfish::PassCosts;
using pilotfish::PassShare;
using pilotfish::Reach;
using pilotfish::RoundCosts;
using pilotfish::RoundPlan;
using pilotfish::RoundState;
using pilotfish::Source;
using pilotfish::TokenTree;
using pilotfish::TreeToken;

// What a stretch of text is like.
struct Profile {
  double accepted;    // probability that the draft's likeliest token is right
  double confidence;  // what the draft gives it on average
  double copied;      // probability that a position begins a passage that lookup
                      // foresees
  int32_t length;     // tokens of such a passage
};

// What a request asks for: the controller's choice, a chain, or a dynamic tree
// of so many tokens and levels.
struct Setting {
  DraftChoice choice;
  int32_t tree_tokens = 0;
  int32_t tree_levels = 0;
};

struct Totals {
  int64_t num_tokens = 0;
  double seconds = 0;
  int64_t num_rounds = 0;
  int64_t num_draft_rounds = 0;
  int64_t num_lookup_rounds = 0;
  int64_t num_verified = 0;  // drafted tokens
  int64_t num_switches = 0;  // between rounds with and without the draft model

  double rate() const { return num_tokens / seconds; }
};

// Verification like that of a CPU (flat to 4 rows) or flat, and a draft step of
// `draft_step` plain passes.
inline RoundCosts costs(double draft_step, bool flat = false) {
  const auto table = [](std::vector<int32_t> rows, const std::vector<double>& seconds) {
    return PassCosts{.rows = std::move(rows), .contexts = {0, 1024}, .seconds = {seconds, seconds}};
  };
  return {.verify = table({1, 2, 4, 8, 16}, flat ? std::vector<double>{1, 1.01, 1.02, 1.05, 1.1}
                                                 : std::vector<double>{1, 1.04, 1.15, 1.5, 2.4}),
          .draft = DraftCosts{.begin = table({1, 8, 128},
                                             {draft_step, 1.3 * draft_step, 128 * std::max(0.09 * draft_step, 0.005)}),
                              .level = table({1, 8}, {draft_step, 1.3 * draft_step})},
          .head = {},
          .is_measured = true};
}

inline constexpr DraftChoice kAutoChoice{.plain = true, .lookup = true, .draft = true, .is_auto = true};
// So many tokens a round of the draft model, of lookup, or of both.
inline DraftChoice by_draft(int32_t most) { return {.draft = true, .limits = {most, most}}; }
inline DraftChoice by_lookup(int32_t most) { return {.lookup = true, .limits = {most, most}}; }
inline DraftChoice by_both(int32_t most) { return {.lookup = true, .draft = true, .limits = {most, most}}; }
inline constexpr Setting kAuto{kAutoChoice};
inline constexpr int kSeeds = 12;

// Passes of a 7B and a 0.72B shape in int4 on an H100 (native/cuda/NOTES.md),
// in milliseconds.
inline RoundCosts gpu_costs() {
  const auto table = [](std::vector<int32_t> rows, const std::vector<double>& seconds) {
    return PassCosts{.rows = std::move(rows), .contexts = {64, 2048}, .seconds = {seconds, seconds}};
  };
  return {.verify = table({1, 8, 16, 64}, {2.228, 2.451, 3.186, 6.773}),
          .draft = DraftCosts{.begin = table({1, 128}, {0.772, 1.5}), .level = table({1, 8}, {0.772, 0.8})},
          .head = {},
          .is_measured = true};
}

class World {
 public:
  // Others may have a row each in the same passes.
  World(const RoundCosts& costs, const Setting& setting, uint64_t seed, int32_t num_prompt_tokens = 64,
        PassShare share = {})
      : costs_(costs),
        setting_(setting),
        share_(share),
        random_(seed),
        num_tokens_(num_prompt_tokens),
        controller_(costs, setting.choice, 128, num_prompt_tokens) {}

  Controller& controller() { return controller_; }

  // Rounds until the text has grown by num_tokens.
  Totals run(const Profile& profile, int64_t num_tokens) {
    Totals totals;
    while (totals.num_tokens < num_tokens) round(profile, num_tokens - totals.num_tokens, totals);
    return totals;
  }

 private:
  static constexpr int32_t kMostDrafted = 15;
  static constexpr int32_t kMostLooked = 8;
  static constexpr int32_t kMostContinued = 8;
  // The second and third guess, by what is left beside the first one, or by
  // that if it is less.
  static constexpr std::array<double, 2> kOthers{0.35, 0.12};

  // Far behind, the draft begins anew in the middle of the text.
  int32_t num_behind() const { return std::min(num_tokens_ - num_cached_, 128); }

  double uniform() { return std::uniform_real_distribution<double>()(random_); }

  // An id says whether the token is right, which survives pruning.
  int32_t new_id(bool is_right) { return 2 * num_ids_++ + (is_right ? 1 : 0); }
  static bool is_right(const TreeToken& token) { return token.id % 2 == 1; }

  bool grows_trees() const { return setting_.choice.is_auto && !setting_.choice.fixes_chains; }

  void round(const Profile& profile, int64_t num_remaining, Totals& totals) {
    TokenTree found = look_up(profile);
    const auto room = static_cast<int32_t>(std::min<int64_t>(kMostDrafted, num_remaining - 1));
    const int32_t most = setting_.tree_tokens > 0 && room > 0 ? setting_.tree_tokens : room;
    const int32_t levels = setting_.tree_tokens > 0 ? std::min(room, setting_.tree_levels) : room;
    const Reach reach{.num_levels = setting_.choice.draft ? levels : 0,
                      .num_behind = num_behind(),
                      .is_shared = share_.num_requests > 1};
    const RoundPlan plan = controller_.plan({.num_tokens = num_tokens_,
                                             .most_drafted = most,
                                             .num_remaining = static_cast<int32_t>(num_remaining),
                                             .draft = reach,
                                             .head = {},
                                             .lookup = found.tokens(),
                                             .share = share_});
    TokenTree tree;
    tree.merge(found);
    tree.prune(plan.num_lookup);
    level_rows_.clear();
    if (plan.num_draft > 0) draft(profile, plan, most, tree);
    if (grows_trees()) tree.prune(controller_.num_worth(tree));
    finish(plan, tree, totals);
  }

  // What the search would find: a chain, where the text is being copied or
  // seems to be.
  TokenTree look_up(const Profile& profile) {
    TokenTree tree;
    if (num_copied_ == 0 && profile.copied > 0 && uniform() < profile.copied) num_copied_ = profile.length;
    if (num_copied_ == 0) return tree;
    int32_t last = TokenTree::kRoot;
    for (int32_t i = 0; i < kMostLooked; ++i) last = tree.add(new_id(i < num_copied_), last, 0.9f, Source::kLookup);
    return tree;
  }

  // Beside what is looked up, from the root, level by level.
  void draft(const Profile& profile, const RoundPlan& plan, int32_t most, TokenTree& tree) {
    const bool is_tree = grows_trees() || setting_.tree_tokens > 0;
    std::vector<int32_t> level{TokenTree::kRoot};
    for (int32_t depth = 1; depth <= plan.num_levels && !level.empty(); ++depth) {
      if (depth > 1) level_rows_.push_back(static_cast<int32_t>(level.size()));
      for (const int32_t parent : level) add_children(profile, is_tree ? 3 : 1, depth, parent, tree);
      tree.prune(is_tree ? most : TokenTree::kMaxTokens);
      level.clear();
      for (int32_t i = 0; i < tree.size(); ++i) {
        if (tree[i].depth == depth && tree[i].source == Source::kDraft) level.push_back(i);
      }
      std::stable_sort(level.begin(), level.end(),
                       [&](int32_t a, int32_t b) { return tree[a].path_prob > tree[b].path_prob; });
      if (level.size() > kMostContinued) level.resize(kMostContinued);
      if (grows_trees() && !level.empty()) level.resize(controller_.num_continued(tree, level));
    }
  }

  // A draft that is surer of a token is right more often.
  void add_children(const Profile& profile, int32_t count, int32_t depth, int32_t parent, TokenTree& tree) {
    const bool is_lookup_right = tree.size() > 0 && tree[0].source == Source::kLookup && is_right(tree[0]);
    const bool is_parent_right = parent == TokenTree::kRoot ? !is_lookup_right : is_right(tree[parent]);
    const bool is_sure = uniform() < 0.5;
    const double spread = 0.5 * std::min(profile.confidence, 1 - profile.confidence);
    const double shift = 0.5 * std::min(profile.accepted, 1 - profile.accepted);
    const double first = profile.accepted + (is_sure ? shift : -shift);
    const double confidence = profile.confidence + (is_sure ? spread : -spread);
    double until_right = uniform() - first;
    bool is_found = until_right < 0;
    for (int32_t rank = 0; rank < count; ++rank) {
      const double share = rank == 0 ? 1 : kOthers[rank - 1];
      const bool is_this = rank == 0 ? is_found : !is_found && (until_right -= share * std::min(first, 1 - first)) < 0;
      is_found = is_found || is_this;
      const Guess guess{rank, static_cast<float>(rank == 0 ? confidence : share * (1 - confidence))};
      const float prob = grows_trees() ? controller_.rates().prob(guess, depth) : guess.confidence;
      const int32_t index = tree.add(new_id(is_parent_right && is_this), parent, prob);
      if (index != TokenTree::kNone) tree.set_guess(index, guess);
    }
  }

  void finish(const RoundPlan& plan, const TokenTree& tree, Totals& totals) {
    std::vector<int32_t> accepted;
    for (int32_t i = 0; i < tree.size(); ++i) {
      const int32_t parent = accepted.empty() ? TokenTree::kRoot : accepted.back();
      if (is_right(tree[i]) && tree[i].parent == parent) accepted.push_back(i);
    }
    const bool has_drafted = plan.num_draft > 0;
    totals.seconds += controller_.record({tree.tokens(), accepted, has_drafted ? num_behind() : 0, level_rows_});
    if (has_drafted) num_cached_ = num_tokens_ + static_cast<int32_t>(accepted.size());
    const auto num_emitted = static_cast<int32_t>(accepted.size()) + 1;
    num_copied_ = std::max(0, num_copied_ - num_emitted);
    num_tokens_ += num_emitted;
    num_cached_ = std::min(num_cached_, num_tokens_ - 1);
    totals.num_tokens += num_emitted;
    ++totals.num_rounds;
    totals.num_verified += tree.size();
    totals.num_lookup_rounds += plan.num_lookup > 0 ? 1 : 0;
    totals.num_draft_rounds += has_drafted ? 1 : 0;
    totals.num_switches += has_drafted != did_draft_ ? 1 : 0;
    did_draft_ = has_drafted;
  }

  const RoundCosts& costs_;
  const Setting setting_;
  const PassShare share_;
  std::mt19937_64 random_;
  int32_t num_tokens_;
  int32_t num_cached_ = 0;
  int32_t num_copied_ = 0;
  bool did_draft_ = false;
  int32_t num_ids_ = 0;
  std::vector<int32_t> level_rows_;
  Controller controller_;
};

}  // namespace simulation
