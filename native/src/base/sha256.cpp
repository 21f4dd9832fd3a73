#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/platform/processor.h"
#include "base/x86_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace pilotfish {
namespace {

alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void compress_portable(uint32_t* state, const uint8_t* blocks, size_t num_blocks) {
  for (; num_blocks > 0; --num_blocks, blocks += 64) {
    uint32_t schedule[64];
    for (int t = 0; t < 16; ++t) schedule[t] = load_big_endian(blocks + 4 * t);
    for (int t = 16; t < 64; ++t) {
      const uint32_t x = schedule[t - 15];
      const uint32_t y = schedule[t - 2];
      const uint32_t sigma0 = std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3);
      const uint32_t sigma1 = std::rotr(y, 17) ^ std::rotr(y, 19) ^ (y >> 10);
      schedule[t] = schedule[t - 16] + sigma0 + schedule[t - 7] + sigma1;
    }
    uint32_t s[8];
    std::copy_n(state, 8, s);
    for (int t = 0; t < 64; ++t) {
      const uint32_t sum1 = std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25);
      const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
      const uint32_t first = s[7] + sum1 + choice + kRound[t] + schedule[t];
      const uint32_t sum0 = std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22);
      const uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
      std::copy_backward(s, s + 7, s + 8);
      s[4] += first;
      s[0] = first + sum0 + majority;
    }
    for (int i = 0; i < 8; ++i) state[i] += s[i];
  }
}

#if defined(__x86_64__)
// The instructions keep the state as {F,E,B,A} and {H,G,D,C} and do two rounds at a time; message words move through
// four registers that sha256msg1 and sha256msg2 extend.
__attribute__((target("sha,sse4.1,ssse3"))) void compress_sha_ni(uint32_t* state, const uint8_t* blocks,
                                                                 size_t num_blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const __m128i dcba = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state));
  const __m128i hgfe = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4));
  const __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1);
  const __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  for (; num_blocks > 0; --num_blocks, blocks += 64) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i words[4];
    for (int i = 0; i < 4; ++i) {
      words[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks) + i), swap);
    }
#pragma GCC unroll 16
    for (int quad = 0; quad < 16; ++quad) {
      const __m128i constants = _mm_load_si128(reinterpret_cast<const __m128i*>(kRound) + quad);
      const __m128i current = words[quad & 3];
      const __m128i sum = _mm_add_epi32(current, constants);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
      if (quad < 12) {  // words 16 + 4 quad .. of the schedule take the place of the ones just used
        const __m128i next = words[(quad + 1) & 3];
        const __m128i last = words[(quad + 3) & 3];
        const __m128i middle = _mm_alignr_epi8(last, words[(quad + 2) & 3], 4);
        words[quad & 3] = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(current, next), middle), last);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#elif defined(__aarch64__)
// The instructions keep the state as {A,B,C,D} and {E,F,G,H} and do four rounds at a time; message words move through
// four registers that sha256su0 and sha256su1 extend.
__attribute__((target("+crypto"))) void compress_sha2(uint32_t* state, const uint8_t* blocks, size_t num_blocks) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; num_blocks > 0; --num_blocks, blocks += 64) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t words[4];
    for (int i = 0; i < 4; ++i) words[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(blocks + 16 * i)));
#pragma GCC unroll 16
    for (int quad = 0; quad < 16; ++quad) {
      const uint32x4_t sum = vaddq_u32(words[quad & 3], vld1q_u32(kRound + 4 * quad));
      const uint32x4_t abcd_now = abcd;
      abcd = vsha256hq_u32(abcd, efgh, sum);
      efgh = vsha256h2q_u32(efgh, abcd_now, sum);
      if (quad < 12) {  // words 16 + 4 quad .. of the schedule take the place of the ones just used
        const uint32x4_t extended = vsha256su0q_u32(words[quad & 3], words[(quad + 1) & 3]);
        words[quad & 3] = vsha256su1q_u32(extended, words[(quad + 2) & 3], words[(quad + 3) & 3]);
      }
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}
#endif

}  // namespace

Sha256::Sha256(Path path)
    : compress_(compress_portable),
      state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {
#if defined(__x86_64__)
  if (path == Path::kFastest && x86_features().sha) compress_ = compress_sha_ni;
#elif defined(__aarch64__)
  static const bool sha2 = platform::arm_features().sha2;
  if (path == Path::kFastest && sha2) compress_ = compress_sha2;
#else
  static_cast<void>(path);
#endif
}

void Sha256::update(const void* data, size_t num_bytes) {
  auto bytes = static_cast<const uint8_t*>(data);
  num_bytes_ += num_bytes;
  if (num_pending_ > 0) {
    const size_t taken = std::min(num_bytes, pending_.size() - num_pending_);
    std::copy_n(bytes, taken, pending_.data() + num_pending_);
    num_pending_ += taken;
    bytes += taken;
    num_bytes -= taken;
    if (num_pending_ < pending_.size()) return;
    compress_(state_.data(), pending_.data(), 1);
    num_pending_ = 0;
  }
  compress_(state_.data(), bytes, num_bytes / 64);
  num_pending_ = num_bytes % 64;
  std::copy_n(bytes + num_bytes - num_pending_, num_pending_, pending_.data());
}

std::string Sha256::finish() {
  uint8_t tail[128] = {};
  const size_t num_pending = num_pending_ % 64;  // it is less: for the compiler, which warns otherwise (GCC 13)
  std::copy_n(pending_.data(), num_pending, tail);
  tail[num_pending] = 0x80;
  const size_t num_blocks = num_pending < 56 ? 1 : 2;
  const uint64_t num_bits = 8 * num_bytes_;
  for (int i = 0; i < 8; ++i) tail[64 * num_blocks - 1 - i] = static_cast<uint8_t>(num_bits >> (8 * i));
  compress_(state_.data(), tail, num_blocks);

  std::string digest;
  for (const uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) digest += "0123456789abcdef"[word >> shift & 15];
  }
  return digest;
}

}  // namespace pilotfish
