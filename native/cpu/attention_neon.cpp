// `paged_attention` for all sets of NEON: it has no integer products.
#define PILOTFISH_NEON neon

#include "attention_attend.h"

namespace pilotfish::neon {

const AttentionKernels kAttentionKernels = {prepare_row, attend, merge, finish};

}  // namespace pilotfish::neon
