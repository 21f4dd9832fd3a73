// The sizes of an attention layer. Needs no CUDA, so that what the kernels cannot take is refused, and tested,
// anywhere.
#pragma once

namespace pilotfish::cuda {

inline constexpr int kMaxHeadDim = 256;
/// Slots of a cache block at least, so that an aligned chunk of 32 keys lies in one.
inline constexpr int kLeastBlock = 32;

/// The smallest size that kernels are compiled for and that holds head_dim.
constexpr int padded_head_dim(int head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 96 ? 96 : head_dim <= 128 ? 128 : kMaxHeadDim;
}

struct AttentionShape {
  int num_heads;
  int num_kv_heads;
  int head_dim;         // a multiple of 8, of 16 for a cache with scales; at most kMaxHeadDim
  int rotary_dim;       // a multiple of 4
  bool is_interleaved;  // pairs rotate instead of halves
  float scale;
  int sliding_window;  // 0: none
  float softcap;       // 0: none
  float norm_epsilon;
};

}  // namespace pilotfish::cuda
