// The rounds that are recorded when a bundle is loaded: recording one takes milliseconds of the host, which an output
// of a hundred tokens would pay for each length of chain that it tries.
#include <array>
#include <vector>

#include "device/chain_lengths.h"
#include "engine/device_round.h"

namespace pilotfish {

void DeviceRound::rehearse(std::span<const int32_t> block_table, int32_t max_drafted, bool gives_hidden) {
  constexpr std::array<int32_t, 2> kTokens{};
  pf_generate_options options;
  pf_generate_options_init(&options);
  const RoundSettings settings = settings_of(options);
  for (const int32_t num_drafted : recorded_lengths(max_drafted)) {
    const Chain chain{.tokens = kTokens,
                      .block_table = block_table,
                      .num_drafted = num_drafted,
                      .first_token = 0,
                      .gives_hidden = gives_hidden};
    set_inputs(chain, settings);
    for (const bool is_greedy : {true, false})
      rehearse({.num_drafted = num_drafted, .is_greedy = is_greedy, .gives_hidden = gives_hidden});
  }
  rehearse_shared(block_table, gives_hidden);
}

// Plain rounds of any number of sequences, here all the same one: they write the same into the same slots.
void DeviceRound::rehearse_shared(std::span<const int32_t> block_table, bool gives_hidden) {
  constexpr std::array<int32_t, 2> kTokens{};
  pf_generate_options options;
  pf_generate_options_init(&options);
  const Member member{.chain = {.tokens = kTokens, .block_table = block_table, .num_drafted = 0, .first_token = 0},
                      .settings = settings_of(options)};
  const std::vector<Member> members(target_.limits().max_seqs, member);
  for (int32_t num_seqs = 2; num_seqs <= target_.limits().max_seqs; ++num_seqs) {
    set_inputs(std::span(members).first(num_seqs), 0, gives_hidden);
    for (const bool is_greedy : {true, false}) {
      const RoundKind kind{
          .num_drafted = 0, .is_greedy = is_greedy, .gives_hidden = gives_hidden, .num_seqs = num_seqs};
      if (is_greedy) run(kind);
      recorded_shared_.record(kind, [&] { enqueue(kind); });
    }
  }
}

// What a sampled round runs has been run by the greedy one.
void DeviceRound::rehearse(RoundKind kind) {
  const auto record = [&](Drafted drafted, Source source = Source::kDraft) {
    kind.drafted = drafted;
    kind.source = source;
    if (kind.is_greedy) run(kind);
    recorded_.record(kind, [&] { enqueue(kind); });
  };
  if (kind.num_drafted == 0) return record(Drafted::kInRound);
  if (draft_.model) record(Drafted::kInRound);
  if (head_.model) record(Drafted::kInRound, Source::kHead);
  record(Drafted::kChainBefore);
  record(Drafted::kTreeBefore);
}

}  // namespace pilotfish
