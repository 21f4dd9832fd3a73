// Acceptance on trees where nothing is drawn from a draft: greedy paths and typical acceptance.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <vector>

#include "check.h"
#include "chi_square.h"
#include "round/accept.h"
#include "toy_target.h"

namespace {

using check::kFirst;
using check::kNumIds;
using check::logs;
using check::Probs;
using pilotfish::Accepted;
using pilotfish::Distribution;
using pilotfish::Sampler;
using pilotfish::TokenChooser;
using pilotfish::TokenTree;
using pilotfish::TypicalOptions;

constexpr int32_t kRoot = TokenTree::kRoot;

//   root - 3 - 1
//        |   - 2 - 4
//        - 5
TokenTree small_tree() {
  TokenTree tree;
  tree.add(3, kRoot);
  tree.add(1, 0);
  tree.add(2, 0);
  tree.add(5, kRoot);
  tree.add(4, 2);
  return tree;
}

void test_greedy_takes_plain_decodings_path() {
  const TokenTree tree = small_tree();
  Sampler sampler(kNumIds);
  TokenChooser chooser({}, sampler);
  // Rows of the root and of the five tokens: their best ids are given.
  const auto accept = [&](const std::vector<int32_t>& best) {
    std::vector<float> logits(6 * kNumIds);
    for (size_t row = 0; row < best.size(); ++row) logits[row * kNumIds + best[row]] = 1;
    return pilotfish::accept_equal(
        {.tree = tree, .target = {logits.data(), 6, kNumIds}, .num_ids = kNumIds, .tokens = {}, .chooser = chooser});
  };
  const Accepted longest = accept({3, 2, 0, 4, 0, 0});
  CHECK_EQ(longest.num_accepted, 3);
  CHECK_EQ(longest.path[2], 4);
  CHECK_EQ(longest.next_id, 0);
  const Accepted second = accept({5, 0, 0, 0, 1, 0});
  CHECK_EQ(second.num_accepted, 1);
  CHECK_EQ(second.path[0], 3);
  CHECK_EQ(second.next_id, 1);
  CHECK_EQ(accept({4, 0, 0, 0, 0, 0}).num_accepted, 0);
}

void test_typical_acceptance() {
  const TokenTree tree = small_tree();
  Sampler sampler(kNumIds);
  TokenChooser chooser({.temperature = 1}, sampler);
  Distribution scratch;
  const Probs peaked{0.01f, 0.02f, 0.9f, 0.05f, 0.01f, 0.01f};
  const auto accept = [&](const Probs& first, const TypicalOptions& options) {
    const std::vector<float> logits = logs({first, peaked, peaked, kFirst, peaked, peaked});
    return pilotfish::accept_typical(
        {.tree = tree, .target = {logits.data(), 6, kNumIds}, .num_ids = kNumIds, .tokens = {}, .chooser = chooser},
        options, scratch);
  };
  // kFirst has an entropy of 1.67: exp(-1.67) is 0.19. Token 3 of probability 0.2 passes, 2 and 4 after it do too.
  const Accepted all = accept(kFirst, {.epsilon = 0.5f, .delta = 1});
  CHECK_EQ(all.num_accepted, 3);
  CHECK_EQ(all.path[0], 0);
  CHECK_EQ(all.path[1], 2);
  CHECK_EQ(all.path[2], 4);
  // Of two paths of one token the likelier: here 5, as the tokens below 3 are rare.
  const Probs low{0.1f, 0.1f, 0.05f, 0.3f, 0.05f, 0.4f};
  const Accepted strict = accept(low, {.epsilon = 0.25f, .delta = 1});
  CHECK_EQ(strict.num_accepted, 3);  // longest first
  CHECK_EQ(accept({0.1f, 0.1f, 0.1f, 0.01f, 0.09f, 0.6f}, {.epsilon = 0.05f, .delta = 1}).path[0], 3);
  CHECK_EQ(accept({0.5f, 0.5f, 0, 0, 0, 0}, {.epsilon = 0.05f, .delta = 1}).num_accepted, 0);
  const Accepted nothing = accept(peaked, {.epsilon = 0.1f, .delta = 1});  // 3 has 0.05
  CHECK_EQ(nothing.num_accepted, 0);
}

// Building a full tree, its masks among it, and walking it greedily; without the search for a row's best logit, which a
// vocabulary of any size has in plain decoding too.
void test_a_full_tree_takes_microseconds() {
  constexpr int kRepeats = 2000;
  Sampler sampler(8);
  TokenChooser chooser({}, sampler);
  std::vector<float> logits((TokenTree::kMaxTokens + 1) * 8);
  for (size_t row = 0; row <= TokenTree::kMaxTokens; ++row) logits[row * 8 + 1] = 1;
  double best = 1;
  int32_t num_accepted = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    TokenTree tree;
    tree.clear();
    for (int32_t i = 0; i < TokenTree::kMaxTokens; ++i) tree.add(i % 2, (i - 2) < 0 ? kRoot : (i - 2) / 2, 0.5f);
    num_accepted = pilotfish::accept_equal(
                       {.tree = tree, .target = {logits.data(), 64, 8}, .num_ids = 8, .tokens = {}, .chooser = chooser})
                       .num_accepted;
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  CHECK_EQ(num_accepted, 5);
  CHECK(best < 50e-6);
  std::cout << "tree of 63 tokens built and accepted greedily in " << best * 1e6 << " us" << std::endl;
}

}  // namespace

int main() {
  test_greedy_takes_plain_decodings_path();
  test_typical_acceptance();
  test_a_full_tree_takes_microseconds();
  return check::result();
}
