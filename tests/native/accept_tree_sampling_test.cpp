// Acceptance by rejection on trees: whatever is drafted, from wherever, sampled tokens follow the target.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "check.h"
#include "chi_square.h"
#include "draft/draft.h"
#include "draft/draw.h"
#include "round/accept.h"
#include "toy_target.h"

namespace {

using check::chi_square;
using check::kFirst;
using check::kNumIds;
using check::logs;
using check::Probs;
using check::second_after;
using pilotfish::Accepted;
using pilotfish::Distribution;
using pilotfish::Draft;
using pilotfish::RandomStream;
using pilotfish::Sampler;
using pilotfish::SamplingOptions;
using pilotfish::TokenChooser;
using pilotfish::TokenTree;
using pilotfish::Verification;

constexpr int32_t kRoot = TokenTree::kRoot;
constexpr double kChiSquareLimit = 32;  // 5 degrees of freedom, p = 6e-6: some 180 statistics are compared with it
constexpr int32_t kNumBefore = 10;      // tokens of the sequence

// A drafter under test: distribution i of the draft has been made from what its constructor got.
class Drafting {
 public:
  Drafting(const std::vector<Probs>& distributions, const SamplingOptions& options) {
    Sampler sampler(kNumIds);
    draft.distributions.resize(distributions.size());
    for (size_t i = 0; i < distributions.size(); ++i) {
      sampler.process(logs({distributions[i]}), options, draft.distributions[i]);
    }
  }

  void start(int32_t seed) {
    draft.clear({TokenTree::kMaxTokens, TokenTree::kMaxTokens}, 0);
    random = RandomStream(seed);
    num_draws_ = 0;
  }

  // Draws `count` children, in turn from the distributions, and returns them.
  std::vector<int32_t> draw(int32_t parent, int32_t count, const std::vector<int32_t>& distributions) {
    std::vector<int32_t> siblings, drawn_indices;
    TokenTree& tree = draft.tree;
    for (int32_t i = tree.next_child(parent, parent); i != TokenTree::kNone; i = tree.next_child(parent, i)) {
      siblings.push_back(tree[i].id);
    }
    for (int32_t k = 0; k < count; ++k) {
      const int32_t distribution = distributions[k % distributions.size()];
      const int32_t depth = parent == kRoot ? 0 : tree[parent].depth;
      const double u = random.uniform(kNumBefore + depth, RandomStream::Purpose::kDraft, num_draws_++);
      const pilotfish::Drawn drawn = pilotfish::draw_beside(draft.distributions[distribution], siblings, u);
      if (!(drawn.mass > 0)) break;
      const int32_t index = tree.add(drawn.id, parent, drawn.peak);
      tree.set_draw(index, {distribution, drawn.mass});
      siblings.push_back(drawn.id);
      drawn_indices.push_back(index);
    }
    return drawn_indices;
  }

  Draft draft;
  RandomStream random{0};

 private:
  int32_t num_draws_ = 0;
};

struct Counts {
  std::vector<int> first = std::vector<int>(kNumIds);
  std::vector<std::vector<int>> second = std::vector<std::vector<int>>(kNumIds, std::vector<int>(kNumIds));
  int num_accepted = 0;
};

// Builds a tree for each seed and counts what comes out.
Counts count(Drafting& drafting, const SamplingOptions& options, const std::function<void(Drafting&)>& build,
             int num_requests) {
  Sampler sampler(kNumIds);
  TokenChooser chooser(options, sampler);
  const std::vector<int32_t> before(kNumBefore);
  Distribution scratch;
  Counts counts;
  for (int seed = 0; seed < num_requests; ++seed) {
    drafting.start(seed);
    build(drafting);
    const TokenTree& tree = drafting.draft.tree;
    std::vector<Probs> rows{kFirst};
    for (const auto& token : tree.tokens()) rows.push_back(second_after(token.id));
    const std::vector<float> logits = logs(rows);
    const Verification verification{.tree = tree,
                                    .target = {logits.data(), static_cast<int32_t>(rows.size()), kNumIds},
                                    .num_ids = kNumIds,
                                    .tokens = before,
                                    .chooser = chooser};
    const Accepted accepted =
        pilotfish::accept_rejection(verification, drafting.draft.distributions, drafting.random, scratch);
    const auto id = [&](int32_t i) { return i < accepted.num_accepted ? tree[accepted.path[i]].id : accepted.next_id; };
    ++counts.first[id(0)];
    if (accepted.num_accepted > 0) ++counts.second[id(0)][id(1)];
    counts.num_accepted += accepted.num_accepted;
  }
  return counts;
}

double worst_chi_square(const Counts& counts, int num_requests) {
  double worst = chi_square(counts.first, kFirst, num_requests);
  for (int32_t id = 0; id < kNumIds; ++id) {
    int total = 0;
    for (const int each : counts.second[id]) total += each;
    if (total >= 1000) worst = std::max(worst, chi_square(counts.second[id], second_after(id), total));
  }
  return worst;
}

const Probs kNear{0.06f, 0.09f, 0.2f, 0.15f, 0.25f, 0.25f};
const Probs kFar{0.6f, 0.3f, 0.05f, 0.03f, 0.01f, 0.01f};
const Probs kTwo{0.7f, 0.3f, 0, 0, 0, 0};
const Probs kTrimmed{0.2f, 0.2f, 0.3f, 0.3f};  // scores only the first four of the ids

void check_tree(const std::string& name, const std::function<void(Drafting&)>& build,
                const SamplingOptions& options = {.temperature = 1}) {
  constexpr int kNumRequests = 40000;
  Drafting drafting({kNear, kFar, kTwo, kTrimmed}, options);
  const double worst = worst_chi_square(count(drafting, options, build, kNumRequests), kNumRequests);
  if (!(worst < kChiSquareLimit)) check::failed(__FILE__, __LINE__, name, ": chi-square is ", worst);
}

void draw_levels(Drafting& drafting, const std::vector<int32_t>& widths, const std::vector<int32_t>& distributions) {
  std::vector<int32_t> level{kRoot};
  for (const int32_t width : widths) {
    std::vector<int32_t> next;
    for (const int32_t parent : level) {
      for (const int32_t child : drafting.draw(parent, width, distributions)) next.push_back(child);
    }
    level = next;
  }
}

void test_shapes() {
  for (const std::vector<int32_t>& widths : std::vector<std::vector<int32_t>>{{1}, {2}, {6}, {1, 3}, {2, 2}, {3, 1}}) {
    for (const int32_t distribution : {0, 1, 3}) {
      const std::string name =
          std::to_string(widths[0]) + "-" + std::to_string(widths.back()) + " of " + std::to_string(distribution);
      check_tree(name, [&](Drafting& drafting) { draw_levels(drafting, widths, {distribution}); });
    }
  }
  // min_p this small keeps everything but goes through the lists of candidates.
  check_tree("sparse", [](Drafting& drafting) { draw_levels(drafting, {3, 2}, {0}); },
             {.temperature = 1, .min_p = 1e-6f});
}

// Siblings from several drafts, or from several temperatures of one.
void test_mixtures() {
  check_tree("two drafts", [](Drafting& drafting) { draw_levels(drafting, {4, 2}, {0, 1}); });
  check_tree("three drafts", [](Drafting& drafting) { draw_levels(drafting, {3, 3}, {1, 2, 3}); });
  check_tree("one draft after the other", [](Drafting& drafting) {
    for (const int32_t child : drafting.draw(kRoot, 2, {1})) drafting.draw(child, 1, {1});
    for (const int32_t child : drafting.draw(kRoot, 2, {0})) drafting.draw(child, 2, {0});
    drafting.draw(0, 1, {0});  // below the first one's token
  });
}

void test_more_children_than_the_draft_knows() {
  check_tree("two tokens", [](Drafting& drafting) {
    CHECK_EQ(drafting.draw(kRoot, 4, {2}).size(), size_t{2});
    draw_levels(drafting, {2, 2}, {2});  // nothing is left for these
  });
}

void test_certain_tokens() {
  const auto add = [](Drafting& drafting, int32_t id, int32_t parent) { return drafting.draft.tree.add(id, parent); };
  check_tree("certain", [&](Drafting& drafting) {
    add(drafting, 3, kRoot);
    add(drafting, 5, add(drafting, 1, kRoot));
    add(drafting, 1, 0);
  });
  check_tree("certain, then drawn", [&](Drafting& drafting) {
    add(drafting, 4, add(drafting, 5, kRoot));
    draw_levels(drafting, {2, 2}, {1});
  });
  check_tree("drawn, then certain", [&](Drafting& drafting) {
    draw_levels(drafting, {1, 1}, {0});
    add(drafting, 5, kRoot);  // which may be the one that was drawn
    add(drafting, 0, 0);
  });
  check_tree("drawn on both sides of a certain one", [&](Drafting& drafting) {
    drafting.draw(kRoot, 1, {1});
    add(drafting, 5, kRoot);
    drafting.draw(kRoot, 2, {0});
    add(drafting, 2, kRoot);
  });
}

// Trees drawn apart and merged, or pruned by what was drawn, have certain tokens only.
void test_merged_and_pruned() {
  check_tree("merged", [](Drafting& drafting) {
    draw_levels(drafting, {2, 2}, {0});
    TokenTree other = drafting.draft.tree;
    drafting.draft.tree.clear();
    draw_levels(drafting, {2, 1}, {1});
    TokenTree merged;
    merged.merge(drafting.draft.tree);
    merged.merge(other);
    drafting.draft.tree = merged;
  });
  check_tree("pruned", [](Drafting& drafting) {
    draw_levels(drafting, {3, 2}, {1});
    drafting.draft.tree.prune(4);
  });
}

// Whether a sibling is drawn may depend on what was drawn before it.
void test_shapes_that_depend_on_the_draws() {
  check_tree("adapted", [](Drafting& drafting) {
    const int32_t first = drafting.draw(kRoot, 1, {0})[0];
    const int32_t below = drafting.draw(first, 1, {0})[0];
    if (drafting.draft.tree[below].id > 2) drafting.draw(kRoot, 2, {0});
    if (drafting.draft.tree[first].id > 2) drafting.draw(first, 1, {0});
  });
}

void test_the_test_would_notice_a_choice_by_value() {
  const SamplingOptions options{.temperature = 1};
  Drafting drafting({kNear}, options);
  const Counts counts = count(
      drafting, options,
      [](Drafting& chosen) {
        const int32_t drawn = chosen.draw(kRoot, 1, {0})[0];
        if (chosen.draft.tree[drawn].id < 4) chosen.draft.tree.clear();
      },
      10000);
  CHECK(worst_chi_square(counts, 10000) > 10 * kChiSquareLimit);
}

}  // namespace

int main() {
  test_shapes();
  test_mixtures();
  test_more_children_than_the_draft_knows();
  test_certain_tokens();
  test_merged_and_pruned();
  test_shapes_that_depend_on_the_draws();
  test_the_test_would_notice_a_choice_by_value();
  return check::result();
}
