// Recordings of a device's rounds, one a kind, of which those that were used last are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/token_tree.h"
#include "device/chain_lengths.h"
#include "device/cuda_device.h"

namespace pilotfish {

// Where the drafted tokens of a round come from: the draft model's passes are part of the round, or it only verifies.
enum class Drafted { kInRound, kTreeInRound, kChainBefore, kTreeBefore };

// What decides which kernels a round consists of.
struct RoundKind {
  int32_t num_drafted;
  bool is_greedy;
  Drafted drafted = Drafted::kInRound;
  int32_t num_levels = 0;          // of a tree in the round
  bool gives_hidden = false;       // the target's residual streams
  Source source = Source::kDraft;  // whose passes those in the round are; of a head's, the first one came before
  int32_t num_seqs = 1;            // that share its passes; each drafts as many tokens, where they do that in the round
  SharedRows verified{0, 0};       // of several sequences that have drafted before

  // Of the verification.
  int32_t num_rows() const noexcept { return verified.num_rows > 0 ? verified.num_rows : num_seqs * (num_drafted + 1); }
  // Of each of several sequences that have as many each, else 0.
  int32_t sequence_rows() const noexcept { return num_seqs > 1 && verified.num_rows == 0 ? num_drafted + 1 : 0; }
  bool is_tree() const noexcept { return drafted == Drafted::kTreeInRound || drafted == Drafted::kTreeBefore; }

  // Of the draft model.
  int32_t num_steps() const noexcept { return has_chain_steps() ? num_drafted : num_levels; }
  bool has_chain_steps() const noexcept { return drafted == Drafted::kInRound; }
  // Of its recording.
  uint64_t num_bytes(const RecordedPassBytes& pass) const noexcept {
    return pass.target + num_steps() * (source == Source::kHead ? pass.head : pass.draft);
  }
  bool operator==(const RoundKind&) const = default;
};

class RecordedRounds {
 public:
  using Enqueue = std::function<void()>;
  // Records what the function puts on the stream instead of running it.
  using Record = std::function<std::unique_ptr<CudaGraph>(const Enqueue&)>;

  RecordedRounds(Record record, const RecordedPassBytes& pass, uint64_t most_bytes)
      : record_(std::move(record)), pass_(pass), most_bytes_(most_bytes) {}

  // The first round of a kind is enqueued as it is: ONNX Runtime's memory for its shapes must exist before a recording.
  // The second one is recorded, and that is what runs from then on.
  void run(RoundKind kind, const Enqueue& enqueue);
  // Records a kind without running it. Its passes have run, in rounds of another kind perhaps.
  void record(RoundKind kind, const Enqueue& enqueue);

  // Device memory of all recordings: most_bytes, or that of one longer round.
  uint64_t num_bytes() const noexcept;

 private:
  struct Recorded {
    RoundKind kind;
    std::unique_ptr<CudaGraph> graph;  // nullptr until its second round, and when it was forgotten
  };

  // Of the kind that was used last.
  CudaGraph& recorded(const Enqueue& enqueue);
  void forget_oldest(uint64_t num_new_bytes);

  const Record record_;
  const RecordedPassBytes pass_;
  const uint64_t most_bytes_;
  std::vector<Recorded> rounds_;  // the kind that was used last is the last one
};

}  // namespace pilotfish
