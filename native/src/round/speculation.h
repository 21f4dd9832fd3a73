// How one request drafts: which sources it may use, what the controller makes of them round by round, and which part of
// the sequence the draft model sees.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/token_tree.h"
#include "draft/drafter.h"
#include "draft/head_drafter.h"
#include "draft/lookup_drafter.h"
#include "memory/kv_blocks.h"
#include "memory/prefix_tree.h"
#include "model/prefill.h"
#include "pilotfish.h"
#include "plan/controller.h"
#include "round/accept.h"

namespace pilotfish {

class Engine;

// A draft model need not see the whole sequence. One that was trained on short texts drafts worse after long ones (a
// 16M draft after 700 tokens: half as many accepted), and the tokens that it has to read first are time lost. It sees
// at most `most` tokens, and begins anew with the last `fresh` ones where it would see more or has more than those to
// catch up with.
struct DraftWindow {
  int32_t most;
  int32_t fresh;

  // For the option's value, 0: all that the model has positions for.
  static DraftWindow of(int32_t wanted, int32_t max_positions) noexcept;
};

class Speculation {
 public:
  // The engine must outlive it. The request's output has up to max_new_tokens, the sequence up to max_tokens.
  Speculation(Engine& engine, const pf_generate_options& options, int32_t num_prompt_tokens, int32_t max_tokens);

  // Tokens that a round drafts at most, and the deepest path of them.
  TreeLimits limits() const noexcept { return choice_.limits; }
  // Cache slots behind the sequence that a round uses at most, those of tokens that are tried and dropped among them.
  int32_t max_slots() const noexcept {
    const bool may_try_more = choice_.is_tree || (grows_trees() && choice_.draft);
    return may_try_more ? TokenTree::kMaxTokens : choice_.limits.max_tokens;
  }
  // Of a prefix, the last whole blocks in which the draft model may begin anew (DraftWindow), and so writes what is of
  // no use to others.
  int32_t num_own_blocks(const PrefixTree::Match& prefix) const noexcept;
  // Before the first pass: what an earlier request left in the caches of the draft and the head.
  void adopt(const Sequence& sequence) noexcept;
  // After the last one: what the request leaves to later ones,
  void remember() noexcept;
  // and the head reads what it has not read yet, so that they need not run it again.
  void end_head(std::span<const int32_t> tokens, std::span<const int32_t> block_table);
  // Tokens that the target need not run: a head reads the rows of all that its own cache lacks.
  int32_t prefill_begin(const Sequence& sequence) const noexcept;

  // Whether the draft model reads the prompt while the target does: on a device that has the time, as the host needs
  // longer to start such passes than the device to run them. It is sure to draft then. And a chunk of the prompt, up to
  // the last of `tokens`: it is started and not waited for.
  bool reads_ahead(int32_t num_prompt_tokens) const noexcept;
  void read_ahead(std::span<const int32_t> tokens, std::span<const int32_t> block_table, pf_stats& stats);

  // What a round reads.
  struct Round {
    std::span<const int32_t> tokens;
    std::span<const int32_t> block_table;
    TokenChooser& chooser;
    const RandomStream& random;
    const std::atomic<bool>& cancelled;
  };
  // Decides what to draft next and clears `out` for it, within the room that the round has.
  void plan(std::span<const int32_t> tokens, TreeLimits most, PassShare share, Draft& out);
  // Drafts what is looked up, and prepares what a model or head is to draft: awaits() one then, request() is what it
  // needs, and end_draft() is called afterwards. False if the request was cancelled meanwhile.
  bool draft(const Round& round, Draft& out, pf_stats& stats);
  std::optional<Source> awaits() const noexcept {
    return plan_.num_draft > 0 ? std::optional(plan_.source) : std::nullopt;
  }
  DraftRequest request(const Round& round) noexcept;
  void end_draft(Draft& out, int32_t num_sharing) noexcept;
  // Requests that had a part in what a device drafted.
  void set_num_sharing(int32_t num_sharing) noexcept { num_sharing_ = num_sharing; }
  // Rows that the planned round will have in the target's pass, as far as that is known.
  int32_t num_rows_expected() const noexcept;
  // Whether what is planned is a chain of the draft model or of a head's decoder layer alone, or nothing: what a device
  // drafts by itself.
  bool plans_chain() const noexcept;
  // Whether it is a dynamic tree of one of them alone, as large as the request has them: a device can grow it.
  bool plans_tree() const noexcept;
  // Whether the tokens that a model or head drafts are drawn, to be accepted by rejection.
  bool draws() const noexcept { return draws_; }
  int32_t num_planned() const noexcept { return plan_.num_draft; }
  // Where all requests that share a device's rounds decide together what they draft, this one among them: what it
  // brings into that.
  const std::optional<Sharer>& sharer() const noexcept { return sharer_; }
  Source source_planned() const noexcept { return plan_.num_draft > 0 ? plan_.source : Source::kDraft; }
  int32_t first_token() const noexcept { return first_token_; }
  // What the draft's confidence is worth.
  const ConfidenceRates& rates() const noexcept { return controller_.rates(); }
  // Instead of draft(), before a device drafts the planned chain or tree: leaves no more than the last two tokens for
  // the draft model to run. False if the request was cancelled meanwhile.
  bool prepare_chain(const Round& round, Draft& out, pf_stats& stats);
  // Right before the device drafts: a head's first pass is started; and what that reads, where several share it.
  void begin_chain(const Round& round);
  HeadBegin head_begin(const Round& round) noexcept { return {&head_state_, round.tokens, round.block_table}; }
  // The device's round came to nothing: the head's first pass is to run again.
  void take_back_chain() noexcept { head_state_.take_back(); }
  // Whether the target's passes are to give the streams of the sequence's tokens, for a head to observe: also where it
  // does not draft, for the sake of later requests that begin alike.
  bool reads_hidden() const noexcept { return keeps_head_; }
  void observe(const HeadRows& pass);
  // For prefill, where it reads_hidden().
  HiddenReader hidden_reader(std::span<const int32_t> tokens, std::span<const int32_t> block_table);
  // Learns from the outcome: `emitted` are the tokens that the round added to the sequence, num_draft_cached how many
  // of its tokens are in the draft's cache now.
  void record(const Draft& drafted, const Accepted& accepted, std::span<const int32_t> emitted,
              int32_t num_draft_cached, pf_stats& stats);

  // Tokens from the first on that the draft's cache holds for whoever continues the sequence.
  int32_t num_draft_retained() const noexcept { return first_token_ == 0 ? num_draft_cached_ : 0; }
  // Slots of the head's cache, of which each is of a token of the sequence and the one after it.
  int32_t num_head_retained(const Sequence& sequence) const noexcept;
  const RoundPlan& decision() const noexcept { return plan_; }
  // Of the last round: passes of the source that runs a model, and drafted tokens that the target saw.
  int32_t num_passes() const noexcept { return num_passes_; }
  int32_t num_verified() const noexcept { return num_verified_; }
  // Of the accepted tokens, among what the model or head thought of in their places; -1: drawn or looked up.
  std::span<const int8_t> accepted_ranks() const noexcept { return std::span(ranks_).first(num_accepted_); }

 private:
  // It makes no difference to the tokens what earlier requests left.
  bool has_memory() const noexcept { return choice_.plain && choice_.is_auto; }
  // Level by level, as long as the next one pays.
  bool grows_trees() const noexcept { return choice_.is_auto && !choice_.fixes_chains; }
  bool catch_up(const Round& round, Draft& out, pf_stats& stats);
  // Whether the planned source is one that a device can draft with by itself.
  bool drafts_on_device() const noexcept;
  bool has_head_cache() const noexcept;
  // The first token that the draft model would see of so many.
  int32_t window_begin(int32_t num_tokens) const noexcept;

  Engine& engine_;
  const DraftChoice choice_;
  const bool draws_;
  const bool keeps_head_;
  const int32_t max_tokens_;
  Controller controller_;
  std::optional<LookupDrafter> lookup_;
  DraftWindow window_{};
  HeadState head_state_;

  int32_t first_token_ = 0;  // that the draft model sees; begins a cache block
  int32_t num_draft_cached_ = 0;
  // Of the round
  RoundPlan plan_;
  std::optional<Sharer> sharer_;
  int32_t num_caught_up_ = 0;
  int32_t num_sharing_ = 1;  // requests that drafted in the same passes
  int32_t num_passes_ = 0;
  int32_t num_verified_ = 0;
  std::array<int8_t, TokenTree::kMaxTokens> ranks_;  // [num_accepted_]
  int32_t num_accepted_ = 0;
};

}  // namespace pilotfish
