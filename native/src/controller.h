// Which source drafts a round, and how many tokens: whatever gives the most expected tokens a second, and nothing where
// plain decoding is as fast. Decides from costs that are fixed when the bundle is loaded and from tokens, never from
// the clock, so that under one calibration a seed repeats its tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "decayed_rate.h"
#include "round_costs.h"
#include "token_tree.h"

namespace pilotfish {

// What a request allows.
struct DraftChoice {
  static constexpr int32_t kAsManyAsPay = -1;

  bool plain;  // rounds that draft nothing although something could be drafted, where that is faster
  bool lookup;
  bool draft;
  int32_t num_tokens;  // a round, whatever they cost; or kAsManyAsPay
};

struct RoundState {
  int32_t num_tokens;                 // of the sequence
  int32_t most_drafted;               // tokens that the round may draft in all
  int32_t most_draft;                 // and of them with the draft model
  int32_t num_draft_behind;           // tokens that the draft's first pass would run
  int32_t num_remaining;              // tokens that the output may still get
  std::span<const TreeToken> lookup;  // what was found, the likeliest path first
};

struct RoundPlan {
  enum class Reason : uint8_t { kBest, kProbe, kPinned };

  int32_t num_lookup = 0;                                        // of the found tokens, from the first
  int32_t num_draft = 0;                                         // tokens at most; the draft stops earlier
  std::array<float, TokenTree::kMaxTokens> least_confidences{};  // below this, by depth
  Reason reason = Reason::kBest;
  float tokens = 1;    // expected, the target's own included
  double seconds = 0;  // expected, with the catching up of the draft's cache
};

struct RoundResult {
  std::span<const TreeToken> tree;    // verified
  std::span<const int32_t> accepted;  // indices of the accepted tokens, from the root down
  int32_t num_draft_passes;           // 0: the draft model did not run
  int32_t num_caught_up;              // rows of the first of them
};

class Controller {
 public:
  // `costs` must outlive it. The credit for trials is a share of the num_tokens that the output may have.
  Controller(const RoundCosts& costs, DraftChoice choice, int32_t num_tokens, int32_t context) noexcept;

  RoundPlan plan(const RoundState& state) noexcept;
  // How many of the likeliest paths of the planned round's tree are worth a row.
  int32_t num_worth(const TokenTree& tree, int32_t num_draft_passes) const noexcept;
  void record(const RoundResult& result) noexcept;

 private:
  struct Arm {
    RoundPlan plan;
    double rate;  // expected tokens a second
  };

  // What the draft model may be worth before it was tried.
  void guess_draft(double plain, int32_t context) noexcept;
  Arm lookup_arm(const RoundState& state) const noexcept;
  // The draft model beside what `lookup` takes of the found tokens.
  Arm draft_arm(const RoundState& state, const RoundPlan& lookup) const noexcept;
  RoundPlan pinned_plan(const RoundState& state) const noexcept;
  bool is_probe_due(const Arm& draft) noexcept;
  bool can_lose(const Arm& arm) const noexcept;
  // Acceptance of the draft's tokens of a depth (from 0), relative to its confidence.
  float optimism(int32_t depth) const noexcept;
  void record_depths(const RoundResult& result) noexcept;

  const RoundCosts& costs_;
  const DraftChoice choice_;

  // Of the rounds that the draft model drafted alone: tokens accepted, and time in plain rounds.
  DecayedRate draft_accepted_;
  DecayedRate draft_cost_;
  // At the first depth and below it, given that the parent was accepted: acceptance of the draft's tokens, and what the
  // draft expected.
  std::array<DecayedRate, 2> hits_;
  std::array<DecayedRate, 2> confidences_;

  bool is_drafting_ = false;  // hysteresis: the draft model seemed worth it lately
  bool has_drafted_ = false;
  int32_t rounds_without_ = 0;
  int32_t probe_interval_;
  int32_t probe_rounds_left_ = 0;
  // Seconds, by the costs, that the draft model may still lose against plain decoding; it earns what it gains.
  double credit_ = 0;

  // Of the planned round.
  RoundPlan planned_;
  double plain_seconds_ = 0;
  int32_t context_ = 0;
};

}  // namespace pilotfish
