// `paged_attention` for portable.
#include "attention_attend.h"

namespace pilotfish::portable {

const AttentionKernels kAttentionKernels = {prepare_row, attend, merge, finish};

}  // namespace pilotfish::portable
