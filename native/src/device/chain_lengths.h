// Lengths of drafted chains, few, where each has a cost of its own: a device records each.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace pilotfish {

// With the token before them 2, 3, 4, 5, 6, 8, 12, ... rows are verified: tensor cores take rows by 8, and a ninth one
// costs as much as eight.
inline constexpr std::array<int32_t, 12> kChainLengths{1, 2, 3, 4, 5, 7, 11, 15, 23, 31, 47, 63};

// The longest of them that has at most `most` tokens; most >= 1.
inline int32_t chain_length_within(int32_t most) noexcept {
  return *(std::upper_bound(kChainLengths.begin(), kChainLengths.end(), most) - 1);
}

// The shortest of them that has at least `least` tokens; least <= 63. A pass is padded to it.
inline int32_t chain_length_of_at_least(int32_t least) noexcept {
  return *std::lower_bound(kChainLengths.begin(), kChainLengths.end(), least);
}

// Row counts at which the cost of a padded verification changes, up to `most` rows: that of each length, and one more.
inline std::vector<int32_t> rows_of_lengths(int32_t most) {
  std::vector<int32_t> rows{1};
  for (const int32_t length : kChainLengths) {
    for (const int32_t count : {length + 1, length + 2}) {
      if (count > rows.back() && count < most) rows.push_back(count);
    }
  }
  if (most > 1) rows.push_back(most);
  return rows;
}

// Of the chains that a controller plans: what it may come to has been recorded when the bundle was loaded, as no output
// of usual length earns back a recording (32 passes of a 7B and a 0.72B model, never run before: 90 ms on an H200).
inline constexpr int32_t kLongestPlannedChain = 15;

// Drafted tokens of the rounds that are recorded when a bundle is loaded: none, each length that is planned, and the
// most there may be, to which a longer verification is padded.
inline std::vector<int32_t> recorded_lengths(int32_t max_drafted) {
  const int32_t longest = std::min(max_drafted, kLongestPlannedChain);
  std::vector<int32_t> lengths{0};
  for (const int32_t length : kChainLengths) {
    if (length < longest) lengths.push_back(length);
  }
  if (longest > 0) lengths.push_back(longest);
  return lengths;
}

// Rows of a pass that is recorded: longer ones are worth more than their launches.
inline constexpr int32_t kMostRecordedRows = 64;

// Shapes of a session's passes whose recordings are kept (recorded_passes.h). Most are of the ends of prompts.
inline constexpr int32_t kMostRecordedShapes = 32;
// Which pass of a shape is recorded; in a calibration each shape has seven at least.
inline constexpr int32_t kPassesBeforeRecording = 4;
static_assert(kPassesBeforeRecording > 1, "ONNX Runtime's memory for a shape must exist before a recording");

// Device memory of a pass of each model in a recording; 0 of one that is not there.
struct RecordedPassBytes {
  uint64_t target = 0, draft = 0, head = 0;

  // Of the model whose passes take more.
  uint64_t drafting() const noexcept { return std::max(draft, head); }
};

// Of the rounds of these lengths, greedy and sampled: those in which a model drafts, and the verifications of chains
// and of trees that something else drafted.
inline uint64_t recorded_round_bytes(const RecordedPassBytes& pass, int32_t max_drafted) {
  uint64_t num_bytes = 0;
  for (const int32_t length : recorded_lengths(max_drafted)) {
    num_bytes += (length == 0 ? 1 : 2) * pass.target;
    for (const uint64_t step : {pass.draft, pass.head}) {
      if (length > 0 && step > 0) num_bytes += pass.target + length * step;
    }
  }
  return 2 * num_bytes;
}

// Rows that a verification of several sequences is filled up to, where they have drafted by themselves: linears cost as
// much for any number of rows between two of them. And the bounds of one sequence's rows that a device is told.
inline constexpr std::array<int32_t, 6> kSharedRows{8, 16, 24, 32, 48, 64};
inline constexpr std::array<int32_t, 4> kSequenceRows{8, 16, 32, 64};

struct SharedRows {
  int32_t num_rows;       // with those that fill it up
  int32_t sequence_rows;  // that no sequence has more of

  // Of num_seqs sequences with num_rows rows together, the longest of which has `longest`; num_rows <= 64.
  static SharedRows of(int32_t num_seqs, int32_t num_rows, int32_t longest) noexcept {
    const int32_t most = *std::ranges::lower_bound(kSequenceRows, longest);
    return {std::min(*std::ranges::lower_bound(kSharedRows, num_rows), num_seqs * most), most};
  }
  bool operator==(const SharedRows&) const = default;
};

// The same of plain rounds that up to max_seqs sequences share, which are recorded at load, with room for those in
// which they draft too, chains of three as a mean, and for those that only verify: as sequences end one by one and
// chains become longer, each number of them has a few kinds.
inline uint64_t most_shared_bytes(const RecordedPassBytes& pass, int32_t max_seqs) {
  if (max_seqs < 2) return 0;
  constexpr uint64_t kDraftedSteps = 3;
  const int32_t num_plain = 2 * (max_seqs - 1), num_verified = std::max(8, max_seqs - 1);
  const int32_t num_drafted = pass.drafting() > 0 ? std::max(24, 3 * (max_seqs - 1)) : 0;
  return (num_plain + num_verified + num_drafted) * pass.target + num_drafted * kDraftedSteps * pass.drafting();
}

// What recorded rounds may take, of which those that were used last are kept: all that were recorded at load, or a
// chain of any length.
inline uint64_t most_recorded_bytes(const RecordedPassBytes& pass, int32_t max_drafted) {
  return std::max(recorded_round_bytes(pass, max_drafted), pass.target + max_drafted * pass.drafting());
}

}  // namespace pilotfish
