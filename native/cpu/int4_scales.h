// The scales of "int4" blocks, for the exporter: those of least squared error among some. Knows nothing about packing.
#pragma once

#include <span>

namespace pilotfish {

// For each block of 32 weights, of `blocks` one behind the other: with each candidate, a fraction of the value that is
// furthest from 0, the weights are rounded to integers -8 .. 7, to which the scale is fitted that has the least squared
// error; `scales` gets the best of these. The same bits on every instruction set.
void fit_int4_scales(std::span<const float> blocks, std::span<const float> candidates, std::span<float> scales);

}  // namespace pilotfish
