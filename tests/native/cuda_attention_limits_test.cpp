// Attention layers that the CUDA kernels do not take are refused with the value and what it would have to be.
#include "check.h"
#include "operators/attention_limits.h"

namespace {

using pilotfish::CacheType;
using pilotfish::cuda::AttentionShape;
using pilotfish::cuda::require_kernels;

AttentionShape layer(int head_dim, int rotary_dim) {
  return {.num_heads = 6,
          .num_kv_heads = 2,
          .head_dim = head_dim,
          .rotary_dim = rotary_dim,
          .is_interleaved = false,
          .scale = 0.125f,
          .sliding_window = 0,
          .softcap = 0,
          .norm_epsilon = 0};
}

// What a layer is refused with; "" if it is not.
template <typename... Arguments>
std::string refusal(const Arguments&... arguments) {
  try {
    require_kernels(arguments...);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

void test_shapes() {
  CHECK_EQ(refusal(layer(64, 64)), "");
  CHECK_EQ(refusal(layer(80, 20)), "");
  CHECK_EQ(refusal(layer(64, 0)), "");
  CHECK_EQ(refusal(layer(64, 6)),
           "rotary_dim is 6, not a multiple of 4, as the CUDA kernels need, and at most head_dim, 64");
  CHECK_EQ(refusal(layer(64, 68)),
           "rotary_dim is 68, not a multiple of 4, as the CUDA kernels need, and at most head_dim, 64");
  CHECK_EQ(refusal(layer(20, 20)), "");
  CHECK_EQ(refusal(layer(512, 512)), "");
  CHECK_EQ(refusal(layer(42, 20)), "head_dim is 42, not a multiple of 4 as the CUDA kernels need");
  AttentionShape uneven = layer(64, 64);
  uneven.num_kv_heads = 4;
  CHECK_EQ(refusal(uneven), "num_heads is 6, not a multiple of num_kv_heads, 4");
  AttentionShape turned = layer(64, 64);
  turned.scale = -0.125f;
  CHECK_EQ(refusal(turned), "scale is -0.125, not above 0 as the CUDA kernels need");
}

void test_blocks() {
  CHECK_EQ(refusal(32), "");
  CHECK_EQ(refusal(128), "");
  CHECK_EQ(refusal(16), "cache blocks have 16 slots, not a power of two from 32 on as the CUDA kernels need");
  CHECK_EQ(refusal(96), "cache blocks have 96 slots, not a power of two from 32 on as the CUDA kernels need");
}

void test_caches() {
  for (const CacheType type : pilotfish::kCacheTypes) {
    CHECK_EQ(refusal(type), type == CacheType::kF32 ? "the cache is f32, which the CUDA kernels do not have" : "");
  }
}

}  // namespace

int main() {
  test_shapes();
  test_blocks();
  test_caches();
  return check::result();
}
