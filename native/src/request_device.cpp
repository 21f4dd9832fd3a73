// What a device does of a round, told in the words of one made by the host: all of it, or the verification.

#include <algorithm>

#include "device/device_outcome.h"
#include "device/device_round.h"
#include "request.h"
#include "timer.h"
#include "verify.h"

namespace pilotfish {

bool Request::runs_on_device() const noexcept {
  return device_settings_ && (speculation_.plans_chain() || grows_on_device());
}

bool Request::grows_on_device() const noexcept {
  return speculation_.plans_tree() &&
         engine_->device_round()->grows(speculation_.source_planned(), speculation_.limits(), draft().max_draft_rows);
}

std::optional<Request::Verdict> Request::decide_on_device() {
  Draft& drafted = draft();
  const auto began = Clock::now();
  if (!speculation_.prepare_chain(round_so_far(), drafted, stats_)) return std::nullopt;
  const TreeLimits limits = speculation_.limits();
  const bool is_tree = grows_on_device();
  RoundSettings settings = *device_settings_;
  if (is_tree) settings.rates = speculation_.rates().table();
  const DeviceRound::Chain chain{
      .tokens = tokens_,
      .block_table = sequence_->block_table(),
      .num_drafted =
          is_tree ? limits.max_tokens : DeviceRound::chain_length(speculation_.num_planned(), limits.max_depth),
      .first_token = speculation_.first_token(),
      .gives_hidden = speculation_.reads_hidden(),
      .source = speculation_.source_planned()};
  DeviceRound& device = *engine_->device_round();
  const bool is_greedy = chooser_.is_greedy();
  const RoundOutcome& outcome =
      is_tree ? device.run_tree(chain, limits.max_depth, settings, is_greedy) : device.run(chain, settings, is_greedy);
  constexpr double kNanosecond = 1e-9;
  const double verify_seconds = kNanosecond * static_cast<double>(outcome.ended - outcome.drafted);
  // A head's first pass came before the device's clock was read.
  stats_.draft_seconds += chain.source == Source::kHead
                              ? Timer::between(began, Clock::now()) - verify_seconds
                              : kNanosecond * static_cast<double>(outcome.drafted - outcome.started);
  stats_.verify_seconds += verify_seconds;
  ++stats_.num_device_rounds;
  if (is_tree) {
    write_tree(outcome, {chain.num_drafted, limits.max_depth}, speculation_.rates(), chain.source, drafted);
    return Verdict{accepted_of(outcome, drafted.tree, chooser_), std::nullopt, outcome.logprobs};
  }
  write_chain(outcome, chain.num_drafted, chain.source, drafted);
  return Verdict{accepted_of(outcome, chooser_), std::nullopt, outcome.logprobs};
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
  Pass pass = rows.at(sequence_->block_table(), num_tokens - 1);
  if (speculation_.reads_hidden()) pass.num_hidden = pass.num_outputs;
  const RoundOutcome& outcome =
      engine_->device_round()->verify(pass, num_tokens, *device_settings_, chooser_.is_greedy());
  ++stats_.num_device_rounds;
  return {accepted_of(outcome, drafted.tree, chooser_), std::nullopt, outcome.logprobs};
}

}  // namespace pilotfish
