// `paged_attention` for avx2.
#include "attention_attend.h"

namespace pilotfish::avx2 {

const AttentionKernels kAttentionKernels = {prepare_row, attend, merge, finish};

}  // namespace pilotfish::avx2
