// What a device does of a round, told in the words of one made by the host: all of it, or the verification.

#include <algorithm>

#include "device/device_outcome.h"
#include "device/device_round.h"
#include "request.h"
#include "timer.h"
#include "verify.h"

namespace pilotfish {

bool Request::runs_on_device() const noexcept { return device_settings_ && speculation_.plans_chain(); }

std::optional<Request::Verdict> Request::decide_on_device() {
  Draft& drafted = engine_->workspace().draft;
  if (!speculation_.prepare_chain(round_so_far(), drafted, stats_)) return std::nullopt;
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

bool Request::verifies_on_device(const TokenTree& tree) const noexcept {
  return device_settings_ && std::ranges::all_of(tree.tokens(), [](const TreeToken& token) {
           return token.draw.distribution == Draw::kCertain;
         });
}

int32_t Request::num_slots(const Draft& drafted) const noexcept {
  if (!device_settings_) return drafted.max_draft_rows;
  const int32_t num_left = sequence_->max_tokens() - static_cast<int32_t>(tokens_.size());
  const int32_t most_rows = std::min(engine_->options().max_draft_tokens, num_left);
  return std::max(drafted.max_draft_rows, DeviceRound::padded_length(drafted.tree.limits().max_tokens, most_rows));
}

Request::Verdict Request::verify_on_device(Draft& drafted) {
  const Timer timer(stats_.verify_seconds);
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  const int32_t num_left = sequence_->max_tokens() - num_tokens;
  // The last rounds of an output have too few slots for some of the lengths.
  const int32_t usual = DeviceRound::padded_length(drafted.tree.size(), engine_->options().max_draft_tokens);
  if (usual > num_left) drafted.tree.prune(DeviceRound::chain_length(num_left, usual));
  TreePass rows = verification_rows(tokens_.back(), drafted.tree);
  rows.pad(1 + DeviceRound::padded_length(drafted.tree.size(), engine_->options().max_draft_tokens));
  const RoundOutcome& outcome = engine_->device_round()->verify(rows.at(sequence_->block_table(), num_tokens - 1),
                                                                num_tokens, *device_settings_, chooser_.is_greedy());
  ++stats_.num_device_rounds;
  return {accepted_of(outcome, drafted.tree, chooser_), std::nullopt, outcome.logprobs};
}

}  // namespace pilotfish
