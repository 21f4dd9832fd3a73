// A round that the device makes by itself, told in the words of one made by the host.

#include "device/device_outcome.h"
#include "device/device_round.h"
#include "request.h"
#include "timer.h"

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

}  // namespace pilotfish
