// The host's part of rounds on a device: which requests have them, how long their chains are, and what is made of their
// outcome. The kernels are tested on a GPU.
#include "engine/device_round.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "check.h"
#include "device/chain_lengths.h"
#include "engine/options.h"
#include "round/device_outcome.h"
#include "sampling/sampling_options.h"

namespace {

using namespace pilotfish;

pf_generate_options plain_options() {
  pf_generate_options options;
  pf_generate_options_init(&options);
  return options;
}

void test_options_that_need_the_logits_need_the_host() {
  CHECK(!pilotfish::needs_host(plain_options()));
  pf_generate_options sampled = plain_options();
  sampled.temperature = 0.7f;
  sampled.top_k = 40;
  sampled.top_p = 0.9f;
  sampled.min_p = 0.05f;
  CHECK(!pilotfish::needs_host(sampled));

  static const pf_logit_bias bias[] = {{3, 1.0f}};
  const std::function<void(pf_generate_options&)> changes[] = {
      [](auto& o) { o.logit_bias = bias, o.num_logit_bias = 1; },
      [](auto& o) { o.repetition_penalty = 1.1f; },
      [](auto& o) { o.presence_penalty = 0.5f; },
      [](auto& o) { o.frequency_penalty = 0.5f; },
      [](auto& o) { o.no_repeat_ngram_size = 3; },
      [](auto& o) { o.min_new_tokens = 2; },
      [](auto& o) { o.mask = [](void*, const int32_t*, size_t, uint32_t*) -> int32_t { return 0; }; },
      [](auto& o) { o.typical_p = 0.9f; },
      [](auto& o) { o.typical_epsilon = 0.3f; },
      [](auto& o) { o.num_top_logprobs = 1; },
  };
  for (const auto& change : changes) {
    pf_generate_options options = sampled;
    change(options);
    CHECK(pilotfish::needs_host(options));
  }
}

void test_settings() {
  pf_generate_options options = plain_options();
  CHECK_EQ(DeviceRound::settings_of(options).inverse_temperature, 1.0f);  // greedy: not used, and finite
  options.temperature = 0.5f;
  options.top_k = 7;
  options.seed = (uint64_t{5} << 32) | 9;
  const RoundSettings settings = DeviceRound::settings_of(options);
  CHECK_EQ(settings.inverse_temperature, 2.0f);
  CHECK_EQ(settings.top_k, 7);
  CHECK_EQ(settings.key[0], 9u);
  CHECK_EQ(settings.key[1], 5u);
}

void test_chain_lengths() {
  CHECK_EQ(DeviceRound::chain_length(13, 13), 13);  // the request's own
  CHECK_EQ(DeviceRound::chain_length(0, 13), 0);
  CHECK_EQ(DeviceRound::chain_length(1, 13), 1);
  CHECK_EQ(DeviceRound::chain_length(6, 13), 5);
  CHECK_EQ(DeviceRound::chain_length(7, 13), 7);
  CHECK_EQ(DeviceRound::chain_length(12, 13), 11);
  CHECK_EQ(DeviceRound::chain_length(62, 63), 47);
}

void test_verifications_are_padded() {
  CHECK((rows_of_lengths(1) == std::vector<int32_t>{1}));
  CHECK((rows_of_lengths(10) == std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  CHECK((rows_of_lengths(17) == std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17}));
  CHECK_EQ(DeviceRound::padded_length(0, 15), 0);
  CHECK_EQ(DeviceRound::padded_length(1, 15), 1);
  CHECK_EQ(DeviceRound::padded_length(6, 15), 7);
  CHECK_EQ(DeviceRound::padded_length(8, 15), 11);
  CHECK_EQ(DeviceRound::padded_length(8, 9), 9);  // no more rows than there may be
  CHECK_EQ(DeviceRound::padded_length(63, 63), 63);
}

void test_rows_of_several_are_filled_up() {
  const auto check = [](int32_t num_seqs, int32_t num_rows, int32_t longest, int32_t filled, int32_t bound) {
    const SharedRows found = SharedRows::of(num_seqs, num_rows, longest);
    CHECK_EQ(found.num_rows, filled);
    CHECK_EQ(found.sequence_rows, bound);
  };
  check(2, 2, 1, 8, 8);
  check(2, 9, 8, 16, 8);
  check(5, 40, 8, 40, 8);  // what a device is told of each bounds all
  check(3, 17, 9, 24, 16);
  check(2, 33, 32, 48, 32);
  check(16, 64, 33, 64, 64);
  // No more rows than the bounds of all together, and enough of them.
  for (int32_t num_seqs = 2; num_seqs <= 16; ++num_seqs) {
    for (int32_t num_rows = num_seqs; num_rows <= 64; ++num_rows) {
      for (int32_t longest = (num_rows + num_seqs - 1) / num_seqs; longest <= num_rows - num_seqs + 1; ++longest) {
        const SharedRows rows = SharedRows::of(num_seqs, num_rows, longest);
        CHECK(rows.num_rows >= num_rows && rows.num_rows <= 64);
        CHECK(rows.sequence_rows >= longest && rows.sequence_rows * num_seqs >= rows.num_rows);
      }
    }
  }
  const RoundKind kind{
      .num_drafted = 0, .is_greedy = true, .drafted = Drafted::kTreeBefore, .num_seqs = 5, .verified = {40, 8}};
  CHECK_EQ(kind.num_rows(), 40);
  CHECK_EQ(kind.sequence_rows(), 0);
  CHECK_EQ(kind.num_bytes({1, 1, 1}), uint64_t{1});
  const RoundKind trees{
      .num_drafted = 7, .is_greedy = true, .drafted = Drafted::kTreeInRound, .num_levels = 3, .num_seqs = 4};
  CHECK_EQ(trees.num_rows(), 32);
  CHECK_EQ(trees.sequence_rows(), 8);
  CHECK_EQ(trees.num_bytes({1, 1, 1}), uint64_t{4});
}

RoundOutcome outcome_of(std::span<const int32_t> drafted, int32_t num_accepted, int32_t next_id) {
  RoundOutcome outcome{};
  for (size_t i = 0; i < drafted.size(); ++i) outcome.drafted_ids[i] = drafted[i];
  outcome.num_accepted = num_accepted;
  outcome.next_id = next_id;
  return outcome;
}

void test_a_chain_becomes_a_tree() {
  const int32_t ids[] = {5, 6, 5};
  RoundOutcome outcome = outcome_of(ids, 0, 1);
  outcome.drafted_probs[0] = 0.5f;
  outcome.drafted_probs[2] = 0.25f;  // and 0 of the second
  Draft draft;
  draft.clear({3, 3}, 10);
  write_chain(outcome, 3, Source::kDraft, draft);
  CHECK_EQ(draft.tree.size(), 3);
  for (int32_t i = 0; i < 3; ++i) {
    CHECK_EQ(draft.tree[i].id, ids[i]);
    CHECK_EQ(draft.tree[i].parent, i - 1);
    CHECK_EQ(draft.tree[i].draft_row, i < 2 ? i + 1 : 0);
  }
  CHECK_EQ(draft.num_level_passes, 2);
  CHECK_EQ(draft.tree[0].guess.confidence, 0.5f);
}

void test_a_tree_is_told() {
  RoundOutcome outcome{};
  const int32_t ids[] = {5, 6, 7};
  const int8_t parents[] = {-1, 0, -1}, ranks[] = {0, 1, 2}, rows[] = {1, 0, 3};
  const float confidences[] = {0.5f, 0.0f, 0.25f};
  for (int i = 0; i < 3; ++i) {
    outcome.drafted_ids[i] = ids[i];
    outcome.drafted_probs[i] = confidences[i];
    outcome.parents[i] = parents[i];
    outcome.ranks[i] = ranks[i];
    outcome.draft_rows[i] = rows[i];
  }
  Draft draft;
  draft.clear({3, 2}, 10);
  write_tree(outcome, {3, 2}, {}, Source::kDraft, draft);
  CHECK_EQ(draft.tree.size(), 3);
  for (int32_t i = 0; i < 3; ++i) {
    CHECK_EQ(draft.tree[i].id, ids[i]);
    CHECK_EQ(draft.tree[i].parent, parents[i]);
    CHECK_EQ(draft.tree[i].draft_row, rows[i]);
    CHECK_EQ(draft.tree[i].guess.rank, ranks[i]);
  }
  CHECK_EQ(draft.tree[1].depth, 2);
  CHECK_EQ(draft.num_level_passes, 1);
  CHECK_EQ(draft.level_rows[0], kTreeRows);
}

void test_a_table_of_rates_says_the_same() {
  ConfidenceRates rates;
  for (int i = 0; i < 20; ++i) rates.record({.rank = 1, .confidence = 0.3f}, 2, i % 3 == 0);
  const RateTable table = rates.table();
  const float of_rank = std::min(0.3f * table.by_confidence[1][3], 1.0f);
  CHECK_EQ(std::min(of_rank * table.by_depth[1], 1.0f), rates.prob({.rank = 1, .confidence = 0.3f}, 2));
  CHECK_EQ(table.bucket_ends[2], 0.2f);
  CHECK_EQ(table.bucket_ends[3], 0.4f);
}

void test_nothing_is_accepted_after_the_end() {
  Sampler sampler(16);
  const TokenChooser chooser({}, sampler, {.end_ids = {2}}, {1, 8, 16});
  const int32_t ids[] = {5, 2, 6};
  const Accepted all = accepted_of(outcome_of(ids, 1, 9), chooser);
  CHECK_EQ(all.num_accepted, 1);
  CHECK_EQ(all.path[0], 0);
  CHECK_EQ(all.next_id, 9);
  CHECK_EQ(accepted_of(outcome_of(ids, 3, 9), chooser).num_accepted, 2);
  CHECK_EQ(accepted_of(outcome_of(ids, 0, 9), chooser).num_accepted, 0);
}

// The rows of a tree: 5 (6, 7 (8)), 9.
void test_choices_become_a_path() {
  Sampler sampler(16);
  const TokenChooser chooser({}, sampler, {.end_ids = {2}}, {1, 8, 16});
  TokenTree tree;
  const int32_t five = tree.add(5, TokenTree::kRoot);
  tree.add(6, five);
  tree.add(8, tree.add(7, five));
  tree.add(9, TokenTree::kRoot);
  const auto accepted = [&](std::initializer_list<int32_t> chosen) {
    RoundOutcome outcome{};
    std::copy(chosen.begin(), chosen.end(), outcome.chosen_ids);
    return accepted_of(outcome, tree, chooser);
  };
  const Accepted deep = accepted({5, 7, 1, 8, 4, 1});
  CHECK_EQ(deep.num_accepted, 3);
  CHECK_EQ(deep.path[1], 2);
  CHECK_EQ(deep.next_id, 4);
  RoundOutcome shared{};  // with the rows of another sequence before them
  const int32_t chosen[] = {9, 9, 9, 5, 7, 1, 8, 4, 1};
  std::copy(std::begin(chosen), std::end(chosen), shared.chosen_ids);
  CHECK_EQ(accepted_of(shared, tree, chooser, 3).num_accepted, 3);
  CHECK_EQ(accepted_of(shared, tree, chooser, 3).next_id, 4);
  const Accepted none = accepted({3, 7, 1, 8, 4, 1});
  CHECK_EQ(none.num_accepted, 0);
  CHECK_EQ(none.next_id, 3);
  CHECK_EQ(accepted({9, 7, 1, 8, 4, 6}).next_id, 6);
}

void test_a_path_ends_with_the_text() {
  Sampler sampler(16);
  const TokenChooser chooser({}, sampler, {.end_ids = {2}}, {1, 8, 16});
  TokenTree tree;
  tree.add(3, tree.add(2, TokenTree::kRoot));
  RoundOutcome outcome{};
  outcome.chosen_ids[0] = 2;
  outcome.chosen_ids[1] = 3;
  CHECK_EQ(accepted_of(outcome, tree, chooser).num_accepted, 1);
}

}  // namespace

int main() {
  test_options_that_need_the_logits_need_the_host();
  test_settings();
  test_chain_lengths();
  test_verifications_are_padded();
  test_rows_of_several_are_filled_up();
  test_a_chain_becomes_a_tree();
  test_a_tree_is_told();
  test_a_table_of_rates_says_the_same();
  test_nothing_is_accepted_after_the_end();
  test_choices_become_a_path();
  test_a_path_ends_with_the_text();
  return check::result();
}
