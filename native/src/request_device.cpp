// A round that the device makes by itself, told in the words of one made by the host.

#include <algorithm>
#include <limits>

#include "device_round.h"
#include "request.h"
#include "timer.h"

namespace pilotfish {
namespace {

// The chain as a tree; all but its last token are in the draft's cache.
void write_chain(const RoundOutcome& outcome, int32_t num_drafted, Draft& out) {
  int32_t parent = TokenTree::kRoot;
  for (int32_t i = 0; i < num_drafted; ++i) {
    const float prob = std::max(outcome.drafted_probs[i], std::numeric_limits<float>::min());
    parent = out.tree.add(outcome.drafted_ids[i], parent, prob);
    out.tree.set_guess(parent, {.rank = 0, .confidence = prob});
    if (i + 1 == num_drafted) break;
    out.tree.set_draft_row(parent, i + 1);
    out.count_level(1);
  }
}

// Nothing is accepted after a token that ends the text.
Accepted accepted_of(const RoundOutcome& outcome, const TokenChooser& chooser) {
  Accepted accepted;
  accepted.next_id = outcome.next_id;
  while (accepted.num_accepted < outcome.num_accepted) {
    const int32_t index = accepted.num_accepted++;
    accepted.path[index] = index;
    if (chooser.ends_text(outcome.drafted_ids[index])) break;
  }
  return accepted;
}

}  // namespace

bool Request::runs_on_device() const noexcept { return device_settings_ && speculation_.plans_chain(); }

std::optional<Request::Verdict> Request::decide_on_device() {
  Draft& drafted = engine_->workspace().draft;
  if (!speculation_.prepare_chain({.tokens = tokens_,
                                   .block_table = sequence_->block_table(),
                                   .chooser = chooser_,
                                   .random = random_,
                                   .cancelled = cancelled_},
                                  drafted, stats_)) {
    return std::nullopt;
  }
  const int32_t num_drafted = DeviceRound::chain_length(speculation_.num_planned(), speculation_.limits().max_depth);
  const RoundOutcome& outcome = engine_->device_round()->run({.tokens = tokens_,
                                                              .block_table = sequence_->block_table(),
                                                              .num_drafted = num_drafted,
                                                              .first_token = speculation_.first_token()},
                                                             *device_settings_, chooser_.is_greedy());
  constexpr double kNanosecond = 1e-9;
  stats_.draft_seconds += kNanosecond * static_cast<double>(outcome.drafted - outcome.started);
  stats_.verify_seconds += kNanosecond * static_cast<double>(outcome.ended - outcome.drafted);
  ++stats_.num_device_rounds;
  write_chain(outcome, num_drafted, drafted);
  return Verdict{accepted_of(outcome, chooser_), std::nullopt, outcome.logprobs};
}

}  // namespace pilotfish
