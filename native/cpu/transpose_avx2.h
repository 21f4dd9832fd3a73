// Sixteen columns of sixteen rows of bytes or of two-byte elements, transposed. For AVX2 and above.
#pragma once

#include <immintrin.h>

#include "simd.h"

namespace pilotfish::PILOTFISH_SIMD {

// Transposes 8 x 8 elements of two bytes in each 128-bit lane: output c holds element c of inputs 0 .. 7.
inline void transpose_eight(__m256i (&rows)[8]) {
  __m256i pairs[8], quads[8];
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm256_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]);
    pairs[2 * i + 1] = _mm256_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    for (int side = 0; side < 2; ++side) {
      quads[4 * i + 2 * side] = _mm256_unpacklo_epi32(pairs[4 * i + side], pairs[4 * i + 2 + side]);
      quads[4 * i + 2 * side + 1] = _mm256_unpackhi_epi32(pairs[4 * i + side], pairs[4 * i + 2 + side]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    rows[2 * i] = _mm256_unpacklo_epi64(quads[i], quads[4 + i]);
    rows[2 * i + 1] = _mm256_unpackhi_epi64(quads[i], quads[4 + i]);
  }
}

// Calls take(column, elements) with from[at[row] + column] of sixteen rows, for sixteen columns. Each of four rounds
// moves one bit of the row's number behind the column's.
template <class Take>
inline void transpose(const uint8_t* from, const int64_t* at, const Take& take) {
  __m128i rows[16], mixed[16];
  for (int row = 0; row < 16; ++row) rows[row] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at[row]));
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 8; ++i) {
      mixed[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + 8]);
      mixed[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + 8]);
    }
    for (int i = 0; i < 16; ++i) rows[i] = mixed[i];
  }
  for (int column = 0; column < 16; ++column) {
    alignas(16) uint8_t elements[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(elements), rows[column]);
    take(column, elements);
  }
}

// The same with elements of two bytes.
template <class Take>
inline void transpose(const uint16_t* from, const int64_t* at, const Take& take) {
  for (int side = 0; side < 2; ++side) {
    __m256i rows[8];
    for (int row = 0; row < 8; ++row) {
      const auto upper = reinterpret_cast<const __m128i*>(from + at[row]) + side;
      const auto lower = reinterpret_cast<const __m128i*>(from + at[row + 8]) + side;
      rows[row] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(upper)), _mm_loadu_si128(lower), 1);
    }
    transpose_eight(rows);
    for (int column = 0; column < 8; ++column) {
      alignas(32) uint16_t elements[16];
      _mm256_store_si256(reinterpret_cast<__m256i*>(elements), rows[column]);
      take(side * 8 + column, elements);
    }
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
