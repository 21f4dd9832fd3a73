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

std::optional<Request::DraftToShare> Request::draft_to_share() const noexcept {
  if (!drafts_on_device() || speculation_.num_planned() == 0) return std::nullopt;
  const DeviceRound::Chain chain = planned_chain();
  if (grows_on_device()) {
    return DraftToShare{chain.source, chain.num_drafted, chain.num_drafted, speculation_.limits().max_depth};
  }
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  int32_t most = std::min(num_slots(drafted()), sequence_->max_tokens() - num_tokens);
  if (chain.source == Source::kDraft) {
    most = std::min(most, engine_->draft()->max_positions() - (num_tokens - chain.first_token));
  }
  return DraftToShare{chain.source, chain.num_drafted, std::max(most, chain.num_drafted)};
}

DeviceRound::Member Request::member_of_round(int32_t most) const noexcept {
  DeviceRound::Chain chain = planned_chain();
  chain.num_drafted = std::min(chain.num_drafted, most);
  RoundSettings settings = *device_settings_;
  if (grows_on_device()) settings.rates = speculation_.rates().table();
  return {chain, settings};
}

RoundSettings Request::settings_of_round() const noexcept {
  RoundSettings greedy{};  // of rows whose tokens the host chooses: without noise
  greedy.is_greedy = 1;
  RoundSettings settings = device_settings_.value_or(greedy);
  settings.first_position = static_cast<int32_t>(tokens_.size());
  return settings;
}

DeviceRound::Chain Request::planned_chain() const noexcept {
  return {.tokens = tokens_,
          .block_table = sequence_->block_table(),
          .num_drafted = grows_on_device()
                             ? speculation_.limits().max_tokens
                             : DeviceRound::chain_length(speculation_.num_planned(), speculation_.limits().max_depth),
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
  const auto began = Clock::now();
  speculation_.begin_chain(round_so_far());
  const auto [chain, settings] = member_of_round(TokenTree::kMaxTokens);
  DeviceRound& device = *engine_->device_round();
  const RoundOutcome& outcome = grows_on_device() ? device.run_tree(chain, speculation_.limits().max_depth, settings)
                                                  : device.run(chain, settings);
  count_seconds(outcome, chain.source, Timer::between(began, Clock::now()));
  return verdict_of(outcome, chain, 0);
}

Request::Verdict Request::take_part_of(const DeviceVerified& shared) {
  const DeviceRound::Chain chain = member_of_round(shared.most).chain;
  speculation_.set_num_sharing(shared.num_sharing);
  return verdict_of(shared.outcome, chain, shared.first_row);
}

Request::Verdict Request::verdict_of(const RoundOutcome& outcome, const DeviceRound::Chain& chain, int32_t first_row) {
  Draft& draft = drafted();
  Accepted accepted;
  if (grows_on_device()) {
    const TreeLimits limits{chain.num_drafted, speculation_.limits().max_depth};
    write_tree(outcome, limits, speculation_.rates(), chain.source, draft);
    accepted = pilotfish::accepted_of(outcome, draft.tree, chooser_);
  } else {
    write_chain(outcome, chain.num_drafted, chain.source, draft);
    accepted = pilotfish::accepted_of(outcome, chooser_);
  }
  return {accepted, std::nullopt, outcome.logprobs, first_row};
}

int32_t Request::num_slots(const Draft& drafted) const noexcept {
  if (!device_settings_) return drafted.max_draft_rows;
  const int32_t num_left = sequence_->max_tokens() - static_cast<int32_t>(tokens_.size());
  const int32_t most_rows = std::min(engine_->options().max_draft_tokens, num_left);
  return std::max(drafted.max_draft_rows, DeviceRound::padded_length(drafted.tree.limits().max_tokens, most_rows));
}

void Request::fit_to_slots() {
  if (!device_settings_ || drafts_on_device()) return;
  TokenTree& tree = drafted().tree;
  const int32_t num_left = sequence_->max_tokens() - static_cast<int32_t>(tokens_.size());
  const int32_t usual = DeviceRound::padded_length(tree.size(), engine_->options().max_draft_tokens);
  if (usual > num_left) tree.prune(DeviceRound::chain_length(num_left, usual));
}

Request::Verdict Request::verify_drafted_on_device() {
  const Draft& draft = drafted();
  const Timer timer(stats_.verify_seconds);
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  TreePass rows = rows_to_verify();
  rows.pad(1 + DeviceRound::padded_length(draft.tree.size(), engine_->options().max_draft_tokens));
  Pass pass = rows.at(sequence_->block_table(), num_tokens - 1);
  if (speculation_.reads_hidden()) pass.num_hidden = pass.num_outputs;
  const RoundOutcome& outcome = engine_->device_round()->verify(pass, num_tokens, *device_settings_);
  return {pilotfish::accepted_of(outcome, draft.tree, chooser_), std::nullopt, outcome.logprobs};
}

}  // namespace pilotfish
