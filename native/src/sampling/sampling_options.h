// The options of the C API that decide which token is chosen: their limits, and what the engine makes of them.
#pragma once

#include <cstdint>
#include <span>

#include "pilotfish.h"
#include "sampling/processors.h"
#include "sampling/sampler.h"

namespace pilotfish {

inline bool is_greedy(const pf_generate_options& options) noexcept {
  return options.temperature < PF_LEAST_TEMPERATURE;
}

// The values that change nothing.
void set_sampling_defaults(pf_generate_options& options) noexcept;

// Throws PF_INVALID_ARGUMENT naming the field, its value and its limit.
void check_sampling(const pf_generate_options& options);
// The same for ids, which depend on the vocabulary.
void check_option_ids(const pf_generate_options& options, int32_t num_ids);

// Whether the host chooses the tokens, from logits, also where a device could.
bool needs_host(const pf_generate_options& options) noexcept;

SamplingOptions sampling_options(const pf_generate_options& options) noexcept;
// `eos_ids` end the text beside stop_ids, unless the options ignore them.
ProcessorOptions processor_options(const pf_generate_options& options, std::span<const int32_t> eos_ids);

}  // namespace pilotfish
