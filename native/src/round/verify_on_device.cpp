// Rounds whose tokens a device chooses: it verifies what the host has drafted, or drafts too.

#include <algorithm>

#include "base/timer.h"
#include "engine/device_round.h"
#include "round/device_outcome.h"
#include "round/request.h"

namespace pilotfish {

bool Request::drafts_on_device() const noexcept {
  return device_settings_ && (speculation_.plans_chain() || grows_on_device());
}

bool Request::grows_on_device() const noexcept {
  return speculation_.plans_tree() &&
         engine_->device_round()->grows(speculation_.source_planned(), speculation_.limits(), drafted().max_draft_rows);
}

const Sharer* Request::sharer() const noexcept {
  const std::optional<Sharer>& sharer = speculation_.sharer();
  const bool may_draft = stage_ == Stage::kPlanned && device_settings_ && sharer && (sharer->draft || sharer->head);
  return may_draft ? &*sharer : nullptr;
}

bool Request::is_plain_on_device() const noexcept {
  return stage_ == Stage::kPlanned && device_settings_ && speculation_.plans_chain() && speculation_.num_planned() == 0;
}

std::optional<Request::ChainToShare> Request::chain_to_share() const noexcept {
  if (!device_settings_ || !speculation_.plans_chain()) return std::nullopt;
  const DeviceRound::Chain chain = planned_chain();
  if (chain.num_drafted == 0) return ChainToShare{Source::kDraft, 0, 0};
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  int32_t most = std::min(num_slots(drafted()), sequence_->max_tokens() - num_tokens);
  if (chain.source == Source::kDraft) {
    most = std::min(most, engine_->draft()->max_positions() - (num_tokens - chain.first_token));
  }
  return ChainToShare{chain.source, chain.num_drafted, std::max(most, chain.num_drafted)};
}

DeviceRound::Member Request::member_of_round(int32_t most) const noexcept {
  DeviceRound::Chain chain = planned_chain();
  chain.num_drafted = std::min(chain.num_drafted, most);
  return {chain, *device_settings_};
}

DeviceRound::Chain Request::planned_chain() const noexcept {
  return {.tokens = tokens_,
          .block_table = sequence_->block_table(),
          .num_drafted = DeviceRound::chain_length(speculation_.num_planned(), speculation_.limits().max_depth),
          .first_token = speculation_.first_token(),
          .gives_hidden = speculation_.reads_hidden(),
          .source = speculation_.source_planned()};
}

void Request::count_seconds(const RoundOutcome& outcome, Source source, double seconds) {
  constexpr double kNanosecond = 1e-9;
  const double drafted = kNanosecond * static_cast<double>(outcome.drafted - outcome.started);
  const double verified = kNanosecond * static_cast<double>(outcome.ended - outcome.drafted);
  stats_.draft_seconds += source == Source::kHead ? seconds - verified : drafted;
  stats_.verify_seconds += verified;
}

Request::Verdict Request::draft_and_verify_on_device() {
  Draft& draft = drafted();
  const auto began = Clock::now();
  speculation_.begin_chain(round_so_far());
  const TreeLimits limits = speculation_.limits();
  const bool is_tree = grows_on_device();
  RoundSettings settings = *device_settings_;
  if (is_tree) settings.rates = speculation_.rates().table();
  DeviceRound::Chain chain = planned_chain();
  if (is_tree) chain.num_drafted = limits.max_tokens;
  DeviceRound& device = *engine_->device_round();
  const RoundOutcome& outcome =
      is_tree ? device.run_tree(chain, limits.max_depth, settings) : device.run(chain, settings);
  count_seconds(outcome, chain.source, Timer::between(began, Clock::now()));
  if (is_tree) {
    write_tree(outcome, {chain.num_drafted, limits.max_depth}, speculation_.rates(), chain.source, draft);
    return Verdict{pilotfish::accepted_of(outcome, draft.tree, chooser_), std::nullopt, outcome.logprobs};
  }
  write_chain(outcome, chain.num_drafted, chain.source, draft);
  return Verdict{pilotfish::accepted_of(outcome, chooser_), std::nullopt, outcome.logprobs};
}

Request::Verdict Request::take_part_of(const DeviceVerified& shared) {
  const DeviceRound::Chain chain = member_of_round(shared.most).chain;
  count_seconds(shared.outcome, chain.source, shared.seconds);
  write_chain(shared.outcome, chain.num_drafted, chain.source, drafted());
  speculation_.set_num_sharing(shared.num_sharing);
  return {pilotfish::accepted_of(shared.outcome, chooser_), std::nullopt, shared.outcome.logprobs, shared.first_row};
}

int32_t Request::num_slots(const Draft& drafted) const noexcept {
  if (!device_settings_) return drafted.max_draft_rows;
  const int32_t num_left = sequence_->max_tokens() - static_cast<int32_t>(tokens_.size());
  const int32_t most_rows = std::min(engine_->options().max_draft_tokens, num_left);
  return std::max(drafted.max_draft_rows, DeviceRound::padded_length(drafted.tree.limits().max_tokens, most_rows));
}

Request::Verdict Request::verify_drafted_on_device() {
  Draft& draft = drafted();
  const Timer timer(stats_.verify_seconds);
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  const int32_t num_left = sequence_->max_tokens() - num_tokens;
  // The last rounds of an output have too few slots for some of the lengths.
  const int32_t usual = DeviceRound::padded_length(draft.tree.size(), engine_->options().max_draft_tokens);
  if (usual > num_left) draft.tree.prune(DeviceRound::chain_length(num_left, usual));
  TreePass rows = rows_to_verify();
  rows.pad(1 + DeviceRound::padded_length(draft.tree.size(), engine_->options().max_draft_tokens));
  Pass pass = rows.at(sequence_->block_table(), num_tokens - 1);
  if (speculation_.reads_hidden()) pass.num_hidden = pass.num_outputs;
  const RoundOutcome& outcome = engine_->device_round()->verify(pass, num_tokens, *device_settings_);
  return {pilotfish::accepted_of(outcome, draft.tree, chooser_), std::nullopt, outcome.logprobs};
}

}  // namespace pilotfish
