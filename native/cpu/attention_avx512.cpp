// `paged_attention` for avx512.
#include "attention_attend.h"

namespace pilotfish::avx512 {

const AttentionKernels kAttentionKernels = {prepare_row, attend, merge, finish};

}  // namespace pilotfish::avx512
