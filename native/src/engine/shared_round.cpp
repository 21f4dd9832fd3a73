// Rounds of several sequences on a device: their rows follow each other in every pass. Those that draft in the round
// draft as much each.
#include <algorithm>
#include <cassert>

#include "engine/device_round.h"

namespace pilotfish {
namespace {

// Of all rows and drafted tokens those of a sequence from the first ones on, counted as if it were alone. What is
// accepted is that of a chain.
void take_part(const RoundOutcome& all, int32_t first_row, int32_t first_drafted, int32_t num_drafted,
               RoundOutcome& out) {
  out.started = all.started;
  out.drafted = all.drafted;
  out.ended = all.ended;
  out.is_broken = all.is_broken;
  std::copy_n(all.drafted_ids + first_drafted, num_drafted, out.drafted_ids);
  std::copy_n(all.drafted_probs + first_drafted, num_drafted, out.drafted_probs);
  std::copy_n(all.parents + first_drafted, num_drafted, out.parents);
  std::copy_n(all.ranks + first_drafted, num_drafted, out.ranks);
  std::copy_n(all.draft_rows + first_drafted, num_drafted, out.draft_rows);
  std::copy_n(all.chosen_ids + first_row, num_drafted + 1, out.chosen_ids);
  std::copy_n(all.logprobs + first_row, num_drafted + 1, out.logprobs);
  out.num_accepted = 0;
  while (out.num_accepted < num_drafted && out.chosen_ids[out.num_accepted] == out.drafted_ids[out.num_accepted]) {
    ++out.num_accepted;
  }
  out.next_id = out.chosen_ids[out.num_accepted];
}

}  // namespace

int32_t DeviceRound::most_drafted(int32_t num_seqs) const noexcept {
  return target_.limits().max_outputs / num_seqs - 1;
}

int32_t DeviceRound::most_members(int32_t num_drafted, bool is_tree) const noexcept {
  const int32_t most = std::min(target_.limits().max_outputs / (num_drafted + 1), target_.limits().max_seqs);
  return is_tree ? std::min(most, kMostTrees) : most;
}

std::span<const RoundOutcome> DeviceRound::run_shared(std::span<const Member> members, int32_t num_drafted,
                                                      int32_t num_levels) {
  const auto num_seqs = static_cast<int32_t>(members.size());
  assert(num_seqs >= 2 && num_seqs <= most_members(num_drafted, num_levels > 0));
  const bool gives_hidden = std::ranges::any_of(members, [](const Member& each) { return each.chain.gives_hidden; });
  const bool is_greedy = std::ranges::all_of(members, [](const Member& each) { return each.settings.is_greedy != 0; });
  set_inputs(members, num_drafted, gives_hidden);
  const RoundOutcome& outcome = run({.num_drafted = num_drafted,
                                     .is_greedy = is_greedy,
                                     .drafted = num_levels > 0 ? Drafted::kTreeInRound : Drafted::kInRound,
                                     .num_levels = num_levels,
                                     .gives_hidden = gives_hidden,
                                     .source = num_drafted > 0 ? members[0].chain.source : Source::kDraft,
                                     .num_seqs = num_seqs});
  for (int32_t i = 0; i < num_seqs; ++i) {
    take_part(outcome, i * (num_drafted + 1), i * num_drafted, members[i].chain.num_drafted, outcomes_[i]);
  }
  return {outcomes_.data(), members.size()};
}

DeviceRound::Verified DeviceRound::verify_shared(SharedPass& rows, std::span<const RoundSettings> settings,
                                                 bool gives_hidden, int32_t first_read) {
  const int32_t num_rows = rows.num_rows(), num_seqs = rows.num_sequences();
  assert(num_seqs >= 2 && settings.size() == size_t(num_seqs) && first_read <= num_rows);
  const SharedRows filled = rows.fill_up();
  Pass pass = rows.pass();
  pass.num_hidden = gives_hidden ? filled.num_rows : 0;
  target_.set_inputs(pass);
  std::ranges::copy(settings, settings_);
  start({.num_drafted = 0,
         .is_greedy = std::ranges::all_of(settings, [](const RoundSettings& each) { return each.is_greedy != 0; }),
         .drafted = pass.tree_mask.empty() ? Drafted::kChainBefore : Drafted::kTreeBefore,
         .gives_hidden = gives_hidden,
         .num_seqs = num_seqs,
         .verified = filled});
  const Logits logits = target_.download(first_read, num_rows - first_read);
  return {finish(), logits};
}

void DeviceRound::set_inputs(std::span<const Member> members, int32_t num_drafted, bool gives_hidden) {
  const int32_t sequence_rows = num_drafted + 1;
  const int32_t num_rows = static_cast<int32_t>(members.size()) * sequence_rows;
  for (size_t i = 0; i < members.size(); ++i) {
    const Chain& chain = members[i].chain;
    assert(chain.num_drafted <= num_drafted && (num_drafted == 0 || chain.source == members[0].chain.source));
    settings_[i] = at(chain, members[i].settings);
    const int32_t context = static_cast<int32_t>(chain.tokens.size()) - 1;
    const size_t first_row = i * sequence_rows;
    ids_[first_row] = chain.tokens.back();
    for (int32_t row = 0; row < sequence_rows; ++row) positions_[first_row + row] = context + row;
    sequences_[i] = {sequence_rows, chain.block_table, context};
  }
  target_.set_inputs({.ids = std::span<const int32_t>(ids_).first(num_rows),
                      .positions = std::span<const int32_t>(positions_).first(num_rows),
                      .tree_mask = std::span<const uint64_t>(masks_).first(num_rows),  // of roots, for trees
                      .block_table = {},
                      .context = 0,
                      .num_outputs = num_rows,
                      .num_hidden = gives_hidden ? num_rows : 0,
                      .sequences = std::span<const PassSequence>(sequences_).first(members.size())});
  if (sequence_rows > 1 && members[0].chain.source == Source::kDraft) set_draft_inputs(members);
}

// Of the first pass, over the last two tokens of each (set_inputs() of a chain says why).
void DeviceRound::set_draft_inputs(std::span<const Member> members) {
  const auto num_seqs = static_cast<int32_t>(members.size());
  for (int32_t i = 0; i < num_seqs; ++i) {
    const Chain& chain = members[i].chain;
    const int32_t context = static_cast<int32_t>(chain.tokens.size()) - chain.first_token - 2;
    assert(context >= 0);
    std::ranges::copy(chain.tokens.last(2), ids_.begin() + 2 * i);
    positions_[2 * i] = context;
    positions_[2 * i + 1] = context + 1;
    output_rows_[i] = 2 * i + 1;
    sequences_[i] = {2, draft_table(chain), context};
  }
  draft_.model->set_inputs({.ids = std::span<const int32_t>(ids_).first(2 * num_seqs),
                            .positions = std::span<const int32_t>(positions_).first(2 * num_seqs),
                            .tree_mask = {},
                            .block_table = {},
                            .context = 0,
                            .num_outputs = num_seqs,
                            .sequences = std::span<const PassSequence>(sequences_).first(num_seqs),
                            .output_rows = std::span<const int32_t>(output_rows_).first(num_seqs)});
}

}  // namespace pilotfish
