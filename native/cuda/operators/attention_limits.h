// What the CUDA kernels ask of an attention layer beyond native/GRAPH.md.
#pragma once

#include "attention_shape.h"
#include "base/cache_type.h"
#include "kernel_io.h"

namespace pilotfish::cuda {

inline void require_kernels(const AttentionShape& shape) {
  require(shape.num_heads % shape.num_kv_heads == 0, "num_heads is ", shape.num_heads,
          ", not a multiple of num_kv_heads, ", shape.num_kv_heads);
  require(shape.head_dim % 4 == 0, "head_dim is ", shape.head_dim, ", not a multiple of 4 as the CUDA kernels need");
  require(shape.rotary_dim % 4 == 0 && shape.rotary_dim <= shape.head_dim, "rotary_dim is ", shape.rotary_dim,
          ", not a multiple of 4, as the CUDA kernels need, and at most head_dim, ", shape.head_dim);
  require(shape.scale > 0, "scale is ", shape.scale, ", not above 0 as the CUDA kernels need");
}

inline void require_kernels(int block_size) {
  require(block_size >= kLeastBlock && (block_size & (block_size - 1)) == 0, "cache blocks have ", block_size,
          " slots, not a power of two from ", kLeastBlock, " on as the CUDA kernels need");
}

inline void require_kernels(CacheType cache) {
  require(is_on_gpus(cache), "the cache is ", name_of(cache), ", which the CUDA kernels do not have");
}

}  // namespace pilotfish::cuda
