// What the operator NormActivation of GRAPH.md does with a row, in the words that CPU and CUDA share.
#pragma once

namespace pilotfish {

enum class NormKind { kNone, kRms, kLayer };
enum class RowActivation { kNone, kSilu, kGelu };

struct NormSettings {
  NormKind norm;
  RowActivation activation;
  float epsilon;  // of the norm
};

}  // namespace pilotfish
