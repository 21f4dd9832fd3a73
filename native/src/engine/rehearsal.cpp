// The rounds that are recorded when a bundle is loaded: recording one takes milliseconds of the host, which an output
// of a hundred tokens would pay for each length of chain that it tries.
#include <array>

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
