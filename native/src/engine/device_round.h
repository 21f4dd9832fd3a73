// A round without the host in it: the draft's steps, the verification and the acceptance of a chain are enqueued
// together, tokens go from one pass to the next on the device, and one small read-back ends the round. From the second
// round of a kind on it is one recorded graph. Plain decoding is a round that drafts nothing; one that does no more
// than verify takes what was drafted elsewhere. Several sequences share a round that drafts as much for each, or one
// that verifies whatever each has drafted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/token_tree.h"
#include "device/cuda_device.h"
#include "device/round_kernels.h"
#include "engine/recorded_rounds.h"
#include "model/likely_rows.h"
#include "model/model.h"
#include "model/shared_pass.h"
#include "pilotfish.h"

namespace pilotfish {

class DeviceRound {
 public:
  // What rounds that are recorded take, and the longest chains.
  struct Recording {
    RecordedPassBytes pass;
    int32_t max_drafted;
  };

  // The models must outlive it; `draft` and `head`, the step of one, may be none. Ids from num_ids on are never chosen.
  DeviceRound(std::shared_ptr<CudaDevice> device, Model& target, RoundModel draft, RoundModel head, int32_t num_ids,
              const Recording& recording);
  DeviceRound(DeviceRound&&) = delete;
  ~DeviceRound();

  // The first logits of a model that may be chosen, where ids from num_ids on are padding.
  static int32_t num_choices(const Model& model, int32_t num_ids) noexcept;
  // What the rounds of a request that need no host have in common.
  static RoundSettings settings_of(const pf_generate_options& options) noexcept;

  // Of a chain that may have up to `most` tokens where the request's have `usual` ones. The last rounds of an output
  // have room for fewer; they take one of a few lengths, as each length has a recording of its own.
  static int32_t chain_length(int32_t most, int32_t usual) noexcept;
  // Rows behind the last token that a verification of num_drafted tokens has: one of the few lengths, or `most`.
  static int32_t padded_length(int32_t num_drafted, int32_t most) noexcept;

  // Records rounds of the kinds that a controller plans with a draft model, a head or lookup, so that no output pays
  // for that. `block_table` has room for two tokens and max_drafted ones, and no slot of the caches is other than a
  // number.
  void rehearse(std::span<const int32_t> block_table, int32_t max_drafted, bool gives_hidden);

  struct Chain {
    std::span<const int32_t> tokens;       // the sequence so far, at least two
    std::span<const int32_t> block_table;  // with room for the drafted tokens
    int32_t num_drafted;                   // by the draft model, which has all but the last two tokens at least
    int32_t first_token;                   // that the draft model sees; begins a cache block
    bool gives_hidden = false;             // the target's residual streams at all rows, for a head
    Source source = Source::kDraft;        // kHead: its first pass has been started
  };
  // Valid until the next round. Throws PF_BUNDLE_CORRUPT if a model gave no numbers.
  const RoundOutcome& run(const Chain& chain, const RoundSettings& settings);

  // A sequence's part in a round that others share: a chain or a tree by the draft model or by a head, or nothing.
  struct Member {
    Chain chain;
    RoundSettings settings;
  };
  // How many tokens each may draft of so many that share a round; and how many can share one in which each drafts a
  // chain of so many, or a tree.
  int32_t most_drafted(int32_t num_seqs) const noexcept;
  int32_t most_members(int32_t num_drafted, bool is_tree) const noexcept;
  // The round of several, each with the bits that it has alone. All draft num_drafted tokens from the same source, for
  // which they have slots; those that want fewer use no more. A head's first pass has been started, over all of them in
  // this order. The outcome of each, with what run() says of it. The residual streams of member i are at rows
  // i * (num_drafted + 1) and on. With num_levels, each grows a tree of so many (run_tree()), and what is accepted of
  // it is left to whoever knows the tree.
  std::span<const RoundOutcome> run_shared(std::span<const Member> members, int32_t num_drafted,
                                           int32_t num_levels = 0);

  // Whether a tree of that size can grow here, with num_slots of the draft's cache behind the sequence.
  bool grows(Source source, TreeLimits tree, int32_t num_slots) const noexcept;
  // A round whose chain is a tree: the likeliest num_drafted paths of up to num_levels tokens.
  const RoundOutcome& run_tree(const Chain& chain, int32_t num_levels, const RoundSettings& settings);

  // Verifies drafted tokens after a sequence of num_tokens: the outcome has what each row chooses, and its
  // log-probability. The other rules of run() are this one's too.
  const RoundOutcome& verify(const Pass& rows, int32_t num_tokens, const RoundSettings& settings);
  // The same of several sequences, whose rows are in `rows` and are filled up there. Of those from row first_read on
  // the host chooses the tokens, and reads the logits: what the outcome says of them counts for nothing. Residual
  // streams are at the rows that `rows` has.
  struct Verified {
    const RoundOutcome& outcome;
    Logits logits;  // from row first_read on
  };
  Verified verify_shared(SharedPass& rows, std::span<const RoundSettings> settings, bool gives_hidden,
                         int32_t first_read);

 private:
  // A model that drafts in rounds.
  struct Drafting {
    Model* model;  // or nullptr
    int32_t num_choices;
    const int32_t* logit_ids;  // of one that scores few tokens, else nullptr
    TreeMemory tree;
  };

  Drafting drafting(RoundModel by, int32_t num_ids);
  const Drafting& of(Source source) const noexcept { return source == Source::kHead ? head_ : draft_; }
  void set_inputs(const Chain& chain, const RoundSettings& settings);
  void set_inputs(std::span<const Member> members, int32_t num_drafted, bool gives_hidden);
  void set_draft_inputs(std::span<const Member> members);
  // Where a sequence's next token is in what a model sees of it.
  RoundSettings at(const Chain& chain, RoundSettings settings) const noexcept;
  std::span<const int32_t> draft_table(const Chain& chain) const noexcept;
  const RoundOutcome& run(RoundKind kind);
  // In two parts: what is enqueued in between ends with the round.
  void start(RoundKind kind);
  const RoundOutcome& finish();
  // And those that have the same inputs, which are set.
  void rehearse(RoundKind kind);
  void rehearse_shared(std::span<const int32_t> block_table, bool gives_hidden);
  void enqueue(RoundKind kind);
  void enqueue_draft_step(int32_t step, RoundKind kind);
  void add_noise(const Drafting& by, const LogitRows& rows, float* logits, int32_t depth);
  void enqueue_level(int32_t level, RoundKind kind);
  template <typename Element>
  Element* memory(size_t count);

  const std::shared_ptr<CudaDevice> device_;
  Model& target_;
  const int32_t num_target_choices_;
  std::vector<CudaMemory> memories_;
  RoundSettings* settings_;  // page-locked, [most sequences of a round]
  RoundOutcome* outcome_;    // page-locked
  RoundSettings* device_settings_;
  RoundMemory memory_;
  Drafting draft_, head_;
  std::vector<int32_t> ids_;  // of the pass whose inputs are being set
  std::vector<uint64_t> masks_;
  std::vector<int32_t> positions_, output_rows_;  // of several sequences
  std::vector<PassSequence> sequences_;
  std::vector<RoundOutcome> outcomes_;
  RecordedRounds recorded_, recorded_shared_;
};

}  // namespace pilotfish
