// The sizes of an attention layer. Needs no CUDA, so that what the kernels cannot take is refused, and tested,
// anywhere.
#pragma once

namespace pilotfish::cuda {

inline constexpr int kMaxHeadDim = 512;
/// Of layers whose products tensor cores compute.
inline constexpr int kMaxTiledHeadDim = 256;
/// Slots of a cache block at least, so that an aligned chunk of 32 keys lies in one.
inline constexpr int kLeastBlock = 32;

/// The smallest size that kernels are compiled for and that holds head_dim.
constexpr int padded_head_dim(int head_dim) {
  return head_dim <= 64                 ? 64
         : head_dim <= 96               ? 96
         : head_dim <= 128              ? 128
         : head_dim <= kMaxTiledHeadDim ? kMaxTiledHeadDim
                                        : kMaxHeadDim;
}

struct AttentionShape {
  int num_heads;
  int num_kv_heads;
  int head_dim;         // a multiple of 4, at most kMaxHeadDim
  int rotary_dim;       // a multiple of 4
  bool is_interleaved;  // pairs rotate instead of halves
  float scale;
  int sliding_window;  // 0: none
  float softcap;       // 0: none
  float norm_epsilon;
  bool shares_cache = false;  // an earlier layer has written the cache: a row of the pass has queries alone

  /// Heads that a row of the pass has.
  constexpr int num_given() const { return num_heads + (shares_cache ? 0 : 2 * num_kv_heads); }
};

}  // namespace pilotfish::cuda
