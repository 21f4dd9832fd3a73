// The kernels that grow a draft's tree, against the same on the host.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gpu_test.h"
#include "kernels.h"
#include "round_test.h"

namespace pilotfish::cuda::test {
namespace {

/// As std::stable_sort has them.
void test_few_likeliest(int num_logits, int num_choices, int num_rows, bool coarse) {
  const std::string name = "few likeliest of " + std::to_string(num_rows) + " x " + std::to_string(num_logits);
  const size_t count = size_t(num_rows) * num_logits;
  const std::vector<float> logits = coarse ? coarse_logits(count, 6) : random_floats(count, 6);
  const DeviceArray<float> device_logits(logits);
  const DeviceArray<LikelyRow> found(kMaxRoundRows), parts(size_t{kMaxRoundRows} * num_row_parts(num_logits));
  const DeviceArray<int32_t> arrivals(std::vector<int32_t>{0});
  for (int repeat = 0; repeat < 2; ++repeat) {
    CUDA_CHECK(launch_find_likeliest({device_logits.get(), num_rows, num_logits, num_choices},
                                     {found.get(), parts.get(), arrivals.get()}, nullptr));
  }
  const std::vector<LikelyRow> rows = found.read();
  for (int row = 0; row < num_rows; ++row) {
    const float* const first = logits.data() + size_t(row) * num_logits;
    std::vector<int> order(num_choices);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return first[a] > first[b]; });
    for (int rank = 0; rank < kMostLikely; ++rank) {
      const bool there = rank < num_choices;
      expect(there ? rows[row].indices[rank] == order[rank] && rows[row].logits[rank] == first[order[rank]]
                   : rows[row].logits[rank] == -std::numeric_limits<float>::infinity(),
             name + ": row " + std::to_string(row) + ", rank " + std::to_string(rank));
    }
    const double sum = log_sum(first, num_choices);
    expect(std::abs(rows[row].log_sum - sum) < 2e-6 * (1 + std::abs(sum)), name + ": sum");
  }
}

RateTable some_rates() {
  RateTable rates{};
  for (int rank = 0; rank < kNumRatedRanks; ++rank) {
    for (int i = 0; i < kNumConfidences; ++i) rates.by_confidence[rank][i] = 1.2f - 0.1f * i - 0.05f * rank;
  }
  for (int depth = 0; depth < kNumRatedDepths; ++depth) rates.by_depth[depth] = 1.0f - 0.1f * depth;
  for (int i = 0; i < kNumConfidences - 1; ++i) rates.bucket_ends[i] = 0.1f * (i + 1);
  return rates;
}

/// A draft's tree, grown here from the same rows of likely tokens.
struct GrownTree {
  std::vector<TreeCandidate> candidates;
  std::vector<int> depths, ranks, continued;

  void grow(const std::vector<LikelyRow>& rows, const RateTable& rates, int level, bool is_last) {
    const auto first = static_cast<int>(candidates.size());
    for (size_t i = 0; i < rows.size() * kMostLikely; ++i) {
      const LikelyRow& row = rows[i / kMostLikely];
      const int rank = static_cast<int>(i % kMostLikely), parent = level == 0 ? -1 : continued[i / kMostLikely];
      const float confidence = std::exp(row.logits[rank] - row.log_sum);
      int bucket = 0;
      while (bucket < kNumConfidences - 1 && confidence >= rates.bucket_ends[bucket]) ++bucket;
      const float ratio = rates.by_confidence[std::min(rank, kNumRatedRanks - 1)][bucket];
      const int group = level < 2 ? level : level < 4 ? 2 : 3;
      const float prob = std::min(std::min(confidence * ratio, 1.0f) * rates.by_depth[group], 1.0f);
      const float path_prob = parent < 0 ? prob : prob * candidates[parent].path_prob;
      candidates.push_back({row.indices[rank], parent, confidence, path_prob, 0, 0});
      depths.push_back(level + 1);
      ranks.push_back(rank);
    }
    if (is_last) return;
    continued.clear();
    for (const int index : likeliest(first, kTreeRows)) {
      candidates[index].draft_row = 1 + level * kTreeRows + static_cast<int>(continued.size());
      continued.push_back(index);
    }
  }

  std::vector<int> likeliest(int first, int count) const {
    std::vector<int> order(candidates.size() - first);
    std::iota(order.begin(), order.end(), first);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return candidates[a].path_prob > candidates[b].path_prob; });
    order.resize(count);
    return order;
  }
};

std::vector<LikelyRow> random_likely(int num_rows, int num_choices, uint64_t seed) {
  std::vector<float> values = random_floats(size_t(num_rows) * kMostLikely, seed);
  std::vector<LikelyRow> rows(num_rows);
  for (int row = 0; row < num_rows; ++row) {
    float* const logits = values.data() + row * kMostLikely;
    std::sort(logits, logits + kMostLikely, std::greater<>());
    std::copy(logits, logits + kMostLikely, rows[row].logits);
    for (int i = 0; i < kMostLikely; ++i)
      rows[row].indices[i] = (row * 31 + i * 7 + static_cast<int>(seed)) % num_choices;
    rows[row].log_sum = static_cast<float>(log_sum(logits, kMostLikely)) + 0.1f;
  }
  return rows;
}

void test_grown_tree(int num_levels, int num_nodes) {
  constexpr int kChoices = 1000;
  const std::string name = "tree of " + std::to_string(num_nodes) + ", " + std::to_string(num_levels) + " levels";
  RoundSettings settings = settings_of(1, 0, 1, 0, 1);
  settings.rates = some_rates();
  const Rounds rounds({settings}, kChoices);
  const DeviceArray<TreeCandidate> candidates(kMostCandidates);
  const DeviceArray<int32_t> continued(kTreeRows), parent_rows(kTreeRows), verified(8 * kMaxRoundRows);
  const DeviceArray<uint64_t> next_masks(kMaxRoundRows), verified_masks(kMaxRoundRows);
  PassInputs next = rounds.inputs(), target{verified.get(), verified.get() + 64, nullptr, nullptr, nullptr, nullptr};
  next.tree_mask = next_masks.get();
  target.tree_mask = verified_masks.get();
  CUDA_CHECK(launch_round_start(rounds.memory(), nullptr));
  GrownTree expected;
  for (int level = 0; level < num_levels; ++level) {
    const std::vector<LikelyRow> rows = random_likely(level == 0 ? 1 : kTreeRows, kChoices, 100 * num_nodes + level);
    const DeviceArray<LikelyRow> device_rows(rows);
    const TreeMemory memory{
        {device_rows.get(), nullptr, nullptr}, candidates.get(), continued.get(), parent_rows.get()};
    CUDA_CHECK(launch_grow_tree({memory, level, num_levels, num_nodes, kChoices, nullptr, next, target},
                                rounds.memory(), nullptr));
    CUDA_CHECK(cudaDeviceSynchronize());
    const auto first = static_cast<int>(expected.candidates.size());
    expected.grow(rows, settings.rates, level, level + 1 == num_levels);
    if (level + 1 == num_levels) break;
    const std::vector<int32_t> pass = rounds.pass.read(), followed = parent_rows.read();
    for (int row = 0; row < kTreeRows; ++row) {
      expect(followed[row] == (expected.continued[row] - first) / kMostLikely, name + ": row that is followed");
      expect(pass[row] == expected.candidates[expected.continued[row]].id, name + ": row " + std::to_string(row));
      expect(pass[64 + row] == settings.draft_position + level && pass[256 + row] == row, name + ": position");
    }
    expect(pass[129] == kTreeRows && pass[192] == settings.draft_position - 1, name + ": sizes");
  }
  std::vector<int> nodes = expected.likeliest(0, num_nodes);
  std::sort(nodes.begin(), nodes.end());
  const RoundOutcome outcome = rounds.outcomes.read()[0];
  const std::vector<int32_t> pass = verified.read();
  const std::vector<uint64_t> masks = verified_masks.read();
  for (int i = 0; i < num_nodes; ++i) {
    const TreeCandidate& node = expected.candidates[nodes[i]];
    const auto parent = static_cast<int>(std::find(nodes.begin(), nodes.end(), node.parent) - nodes.begin());
    const std::string at = name + ": node " + std::to_string(i);
    expect(outcome.drafted_ids[i] == node.id && pass[i + 1] == node.id, at);
    expect(outcome.parents[i] == (node.parent < 0 ? -1 : parent), at + "'s parent");
    expect(outcome.ranks[i] == expected.ranks[nodes[i]] && outcome.draft_rows[i] == node.draft_row, at + "'s row");
    expect(pass[64 + i + 1] == settings.first_position - 1 + expected.depths[nodes[i]], at + "'s position");
    const uint64_t above = node.parent < 0 ? 1 : masks[parent + 1];
    expect(masks[i + 1] == (above | uint64_t{2} << i), at + "'s mask");
  }
}

/// What a launch over several sequences left, beside the same ones alone.
struct Trees {
  explicit Trees(const std::vector<RoundSettings>& settings)
      : rounds(settings, 1000),
        candidates(settings.size() * kMostCandidates),
        continued(settings.size() * kTreeRows),
        parent_rows(settings.size() * kTreeRows),
        verified(8 * kMaxRoundRows),
        next_masks(kMaxRoundRows),
        verified_masks(kMaxRoundRows) {}

  void grow(const std::vector<LikelyRow>& rows, int level, int num_levels, int num_nodes, int num_seqs) {
    const DeviceArray<LikelyRow> device_rows(rows);
    PassInputs next = rounds.inputs(), target{verified.get(), verified.get() + 64, nullptr, nullptr, nullptr, nullptr};
    next.tree_mask = next_masks.get();
    target.tree_mask = verified_masks.get();
    const TreeMemory memory{
        {device_rows.get(), nullptr, nullptr}, candidates.get(), continued.get(), parent_rows.get()};
    if (level == 0) CUDA_CHECK(launch_round_start(rounds.memory(), nullptr));
    CUDA_CHECK(launch_grow_tree({memory, level, num_levels, num_nodes, 1000, nullptr, next, target, num_seqs},
                                rounds.memory(), nullptr));
    CUDA_CHECK(cudaDeviceSynchronize());
  }

  Rounds rounds;
  DeviceArray<TreeCandidate> candidates;
  DeviceArray<int32_t> continued, parent_rows, verified;
  DeviceArray<uint64_t> next_masks, verified_masks;
};

void test_trees_together(int num_seqs, int num_levels, int num_nodes) {
  const std::string name = std::to_string(num_seqs) + " trees of " + std::to_string(num_nodes);
  std::vector<RoundSettings> settings;
  std::deque<Trees> alone;
  for (int s = 0; s < num_seqs; ++s) {
    settings.push_back(settings_of(1, 0, 1, 0, 1));
    settings.back().rates = some_rates();
    settings.back().rates.by_confidence[0][s % kNumConfidences] *= 0.5f;
    settings.back().first_position = 20 + 7 * s;
    settings.back().draft_position = 9 + 5 * s;
    alone.emplace_back(std::vector<RoundSettings>{settings.back()});
  }
  Trees together(settings);
  const auto check_rows = [&](const std::vector<int32_t>& all, const std::vector<int32_t>& own, int from, int first,
                              int count, const std::string& what) {
    for (int i = 0; i < count; ++i) expect(all[from + first + i] == own[from + i], name + ": " + what);
  };
  for (int level = 0; level < num_levels; ++level) {
    const int rows_each = level == 0 ? 1 : kTreeRows;
    const std::vector<LikelyRow> rows = random_likely(num_seqs * rows_each, 1000, 31 * num_nodes + level);
    together.grow(rows, level, num_levels, num_nodes, num_seqs);
    for (int s = 0; s < num_seqs; ++s) {
      const auto first = rows.begin() + s * rows_each;
      alone[s].grow({first, first + rows_each}, level, num_levels, num_nodes, 1);
      if (level + 1 == num_levels) continue;
      const std::vector<int32_t> all = together.rounds.pass.read(), own = alone[s].rounds.pass.read();
      check_rows(all, own, 0, s * kTreeRows, kTreeRows, "ids of a level");
      check_rows(all, own, 64, s * kTreeRows, kTreeRows, "positions of a level");
      expect(all[192 + s] == own[192] && all[128 + s + 1] == (s + 1) * kTreeRows, name + ": sizes of a level");
      const std::vector<uint64_t> masks = together.next_masks.read(), own_masks = alone[s].next_masks.read();
      const std::vector<int32_t> parents = together.parent_rows.read(), own_parents = alone[s].parent_rows.read();
      for (int row = 0; row < kTreeRows; ++row) {
        const int its_row = s * kTreeRows + row;
        expect(masks[its_row] == own_masks[row] && all[256 + its_row] == its_row, name + ": rows of a level");
        expect(parents[its_row] == s * rows_each + own_parents[row], name + ": rows that are followed");
      }
    }
  }
  const RoundOutcome all = together.rounds.outcomes.read()[0];
  const std::vector<int32_t> pass = together.verified.read();
  const std::vector<uint64_t> masks = together.verified_masks.read();
  for (int s = 0; s < num_seqs; ++s) {
    const RoundOutcome own = alone[s].rounds.outcomes.read()[0];
    const int first = s * num_nodes, first_row = s * (num_nodes + 1);
    const std::vector<int32_t> own_pass = alone[s].verified.read();
    const std::vector<uint64_t> own_masks = alone[s].verified_masks.read();
    for (int i = 0; i < num_nodes; ++i) {
      expect(all.drafted_ids[first + i] == own.drafted_ids[i] && all.drafted_probs[first + i] == own.drafted_probs[i] &&
                 all.parents[first + i] == own.parents[i] && all.ranks[first + i] == own.ranks[i] &&
                 all.draft_rows[first + i] == own.draft_rows[i],
             name + ": nodes");
      expect(masks[first_row + i + 1] == own_masks[i + 1], name + ": masks");
    }
    check_rows(pass, own_pass, 1, first_row, num_nodes, "ids to verify");
    check_rows(pass, own_pass, 65, first_row, num_nodes, "positions to verify");
  }
}

}  // namespace
}  // namespace pilotfish::cuda::test

int main() {
  using namespace pilotfish::cuda::test;
  for (const bool coarse : {false, true}) {
    for (const int width : {7, 1000, 32000, 152064}) test_few_likeliest(width, width - (width > 7 ? 3 : 0), 9, coarse);
  }
  for (const auto& [levels, nodes] : {std::pair{1, 3}, {1, 8}, {2, 15}, {5, 15}, {8, 63}})
    test_grown_tree(levels, nodes);
  test_trees_together(2, 1, 8);
  test_trees_together(4, 4, 15);
  test_trees_together(8, 3, 7);
  std::printf(failures ? "%d FAILURES\n" : "all draft tree tests passed\n", failures);
  return failures ? 1 : 0;
}
