// Which source drafts a round, and how large a tree: whatever gives the most expected tokens a second, and nothing
// where plain decoding is as fast. Costs are fixed when the bundle is loaded, what is accepted is learned round by
// round; the clock is never read, so that under one calibration a seed repeats its tokens. A source that is not known
// yet or seems too slow is tried now and then, as far as a credit goes that drafting fills and uses up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/token_tree.h"
#include "plan/draft_memory.h"
#include "plan/draft_pace.h"
#include "plan/round_costs.h"
#include "plan/shared_drafting.h"
#include "plan/source_track.h"

namespace pilotfish {

// What a request's rounds may draft, and from which sources.
struct DraftChoice {
  bool plain = false;  // rounds that draft nothing although something could be drafted, where that is faster
  bool lookup = false;
  bool draft = false;
  bool head = false;
  bool is_auto = false;  // as much as pays, decided round by round; else all that the limits allow
  bool is_tree = false;  // of those limits, in which tokens of all sources compete; else a chain
  // What a model or head drafts is a chain whose length is fixed before: a device makes such rounds by itself.
  bool fixes_chains = false;
  TreeLimits limits{0, 0};  // of the largest draft

  bool has(Source source) const noexcept {
    return source == Source::kLookup ? lookup : source == Source::kHead ? head : draft;
  }
};

// How far a source that runs a model can draft this round.
struct Reach {
  int32_t num_levels = 0;
  int32_t num_behind = 1;  // tokens that its first pass would run
  int32_t context = 0;     // tokens that it sees before those
  bool is_shared = false;  // its passes, by all requests that draft with it
};

// A pass that verifies for several requests: how many, and what they have put into it or will at least.
struct PassShare {
  int32_t num_requests = 1;
  int32_t num_other_rows = 0;
  int32_t most_rows = TokenTree::kMaxTokens + 1;  // that it has room for, of the request that plans
  // What all draft that share a round of a device, where the request may choose; none: it chooses by itself.
  std::optional<SharedChain> chain = {};
};

struct RoundState {
  int32_t num_tokens;     // of the sequence
  int32_t most_drafted;   // tokens that the round may draft in all
  int32_t num_remaining;  // tokens that the output may still get
  Reach draft, head;
  std::span<const TreeToken> lookup;  // what was found, the likeliest path first
  PassShare share = {};

  const Reach& reach(Source source) const noexcept { return source == Source::kHead ? head : draft; }
};

struct RoundPlan {
  enum class Reason : uint8_t { kBest, kProbe, kPinned };

  int32_t num_lookup = 0;          // of the found tokens, from the first
  Source source = Source::kDraft;  // of the others
  int32_t num_draft = 0;           // tokens of that source at most
  int32_t num_levels = 0;          // of the tree, at most
  Reason reason = Reason::kBest;
  float tokens = 1;    // expected, the target's own included
  double seconds = 0;  // expected, with the catching up of the source's cache
};

struct RoundResult {
  std::span<const TreeToken> tree;      // verified
  std::span<const int32_t> accepted;    // indices of the accepted tokens, from the root down
  int32_t num_caught_up = 0;            // rows of the source's first pass; 0: it did not run
  std::span<const int32_t> level_rows;  // rows of each of its further passes
  int32_t num_sharing = 1;              // requests that had a part in the source's passes
};

class Controller final : public DraftPace {
 public:
  // `costs` must outlive it. The output may have num_tokens.
  Controller(const RoundCosts& costs, DraftChoice choice, int32_t num_tokens, int32_t context);

  // Before the first round and after the last one, where the choice is all the controller's.
  void recall(DraftMemory& memory) noexcept;
  void remember(DraftMemory& memory) const noexcept;

  RoundPlan plan(const RoundState& state) noexcept;
  // What the request would bring into a shared round, for whoever decides what all draft.
  Sharer sharer(const RoundState& state) const noexcept;
  // Of the planned round's source.
  const ConfidenceRates& rates() const noexcept { return find_track(planned_.source)->rates(); }
  int32_t num_continued(const TokenTree& tree, std::span<const int32_t> level) noexcept override;
  // How many of the likeliest paths of the planned round's tree are worth a row.
  int32_t num_worth(const TokenTree& tree) const noexcept;
  // Returns the seconds that the round's passes take by the costs.
  double record(const RoundResult& result) noexcept;

 private:
  struct Arm {
    RoundPlan plan;
    double rate;  // expected tokens a second
  };
  // What a source has to read that it has not seen: once, and a round of those that are left.
  struct CatchUp {
    double seconds;
    double seconds_a_round;
  };
  // The likeliest paths that are worth a row, and what they gain in tokens.
  struct Rows {
    int32_t num_tokens;
    double gain;
  };

  Arm lookup_arm(const RoundState& state) const noexcept;
  // A source beside what `lookup` takes of the found tokens.
  Arm draft_arm(const SourceTrack& track, const RoundState& state, const RoundPlan& lookup) const noexcept;
  // A chain of the length that promises most, in place of what `lookup` takes of the found tokens.
  Arm chain_arm(const SourceTrack& track, const RoundState& state) const noexcept;
  // Of the sources that run a model; `without` is what the round would do otherwise.
  Arm best_draft(const RoundState& state, const Arm& without) noexcept;
  RoundPlan pinned_plan(const RoundState& state) const noexcept;
  // Of what all draft.
  RoundPlan shared_plan(const RoundState& state) const noexcept;
  // What time is worth at first, as the tracks guess it.
  void guess_rate() noexcept;
  // What the rest of the round goes by, where a source is to draft.
  void begin_draft(const RoundPlan& plan, const RoundState& state) noexcept;
  CatchUp catching_up(const SourceTrack& track, const RoundState& state) const noexcept;
  // What a pass costs the request that has num_rows rows in it: an equal part of what it takes with one row of each,
  // and all that further rows add. What time is worth to one of them is then what it is worth to all. Where all have as
  // many rows, it is an equal part of everything.
  double verifying(int32_t num_rows) const noexcept;
  // The same of a source's pass that num_sharing requests share; of those to come, all that draft in this round: one
  // that counted on drafting alone would never begin.
  static double drafting(const PassCosts& pass, int32_t num_rows, int32_t context, int32_t num_sharing) noexcept;
  int32_t num_sharing(const Reach& reach) const noexcept { return reach.is_shared ? share_.num_requests : 1; }
  // Of a chain, with a row a level.
  double chaining(const SourceTrack& track, const Reach& reach, int32_t length) const noexcept;
  bool must_draft() const noexcept { return !choice_.plain; }
  // What the source's first pass costs.
  double begin_seconds(const SourceTrack& track, const RoundState& state) const noexcept;
  // Sorts the probabilities of paths.
  Rows rows_worth(std::span<float> path_probs) const noexcept;
  const SourceTrack* find_track(Source source) const noexcept;
  SourceTrack* find_track(Source source) noexcept {
    return const_cast<SourceTrack*>(static_cast<const Controller*>(this)->find_track(source));
  }
  static void record_guesses(ConfidenceRates& rates, const RoundResult& result) noexcept;

  const RoundCosts& costs_;
  const DraftChoice choice_;
  const double most_risked_;  // of the credit, by this request
  std::vector<SourceTrack> tracks_;
  // Of all rounds: tokens, and time in plain rounds.
  DecayedRate tokens_;
  DecayedRate cost_;
  double credit_;  // plain rounds that trials may still lose

  // Of the planned round.
  RoundPlan planned_;
  double plain_seconds_ = 0;
  double rate_ = 0;       // tokens a second that time is worth
  double risk_left_ = 0;  // seconds that the tree may still take to grow
  int32_t context_ = 0;
  int32_t begin_context_ = 0;  // of the source's first pass
  int32_t draft_context_ = 0;  // of its further ones
  int32_t most_drafted_ = 0;
  int32_t num_sharing_ = 1;  // the source's passes
  PassShare share_;
};

}  // namespace pilotfish
