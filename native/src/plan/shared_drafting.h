// What requests draft together that share the rounds of a device: chains of one length from one source, or nothing. A
// round has as many rows for each of them, so that the choice is one for all: what gives all of them together the most
// tokens a second. Time is counted by the costs, and the clock is never read, as in controller.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/token_tree.h"
#include "plan/round_costs.h"

namespace pilotfish {

// Of a round: how many tokens each drafts; 0: none.
struct SharedChain {
  Source source = Source::kDraft;
  int32_t length = 0;
  bool is_probe = false;  // to see whether it pays
};

// What a request would bring into a round that drafts.
struct Sharer {
  // With a source that it may draft with.
  struct Outlook {
    float accepted;           // probability that a token is right, given those before it
    double catch_up_seconds;  // for the source to read what it has not read
    int32_t most;             // tokens that there is room for
    bool is_known = false;    // by what it has drafted
  };

  std::optional<Outlook> draft, head;
  int32_t num_remaining;  // tokens that the output may still get
  int32_t context;

  const std::optional<Outlook>& of(Source source) const noexcept { return source == Source::kHead ? head : draft; }
};

class SharedDrafting {
 public:
  // For `sharers`, at least one, beside num_plain requests that draft nothing in any case. A round has `most_rows` rows
  // for those that draft.
  SharedChain plan(const RoundCosts& costs, std::span<const Sharer> sharers, int32_t num_plain,
                   int32_t most_rows) noexcept;
  // The tokens that the sharers got of the planned round.
  void record(int32_t num_tokens) noexcept;

 private:
  struct Option;

  static Option option_of(const RoundCosts& costs, std::span<const Sharer> sharers, int32_t num_plain,
                          SharedChain chain) noexcept;
  static Option best_option(const RoundCosts& costs, std::span<const Sharer> sharers, int32_t num_plain,
                            int32_t most_rows) noexcept;

  bool is_drafting_ = true;     // lately
  int32_t rounds_without_ = 0;  // that drafted
  // What trials may lose, in plain rounds of all: rounds that draft earn or lose what they gain or lose.
  double credit_ = 0;

  // Of the planned round.
  SharedChain planned_;
  int32_t num_requests_ = 1;
  int32_t num_plain_ = 0;
  double cost_ = 1;  // in plain rounds of all
};

}  // namespace pilotfish
