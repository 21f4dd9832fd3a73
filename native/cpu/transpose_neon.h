// Sixteen columns of sixteen rows of bytes or of two-byte elements, transposed with NEON.
#pragma once

#include <arm_neon.h>

#include "simd.h"

namespace pilotfish::PILOTFISH_SIMD {

// Calls take(column, elements) with from[at[row] + column] of sixteen rows, for sixteen columns. Each of four rounds
// moves one bit of the row's number behind the column's.
template <class Take>
inline void transpose(const uint8_t* from, const int64_t* at, const Take& take) {
  uint8x16_t rows[16], mixed[16];
  for (int row = 0; row < 16; ++row) rows[row] = vld1q_u8(from + at[row]);
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 8; ++i) {
      mixed[2 * i] = vzip1q_u8(rows[i], rows[i + 8]);
      mixed[2 * i + 1] = vzip2q_u8(rows[i], rows[i + 8]);
    }
    for (int i = 0; i < 16; ++i) rows[i] = mixed[i];
  }
  for (int column = 0; column < 16; ++column) {
    uint8_t elements[16];
    vst1q_u8(elements, rows[column]);
    take(column, elements);
  }
}

// Transposes 8 x 8 elements: row c then holds element c of rows 0 .. 7. Three rounds as above.
inline void transpose_eight(uint16x8_t (&rows)[8]) {
  uint16x8_t mixed[8];
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) {
      mixed[2 * i] = vzip1q_u16(rows[i], rows[i + 4]);
      mixed[2 * i + 1] = vzip2q_u16(rows[i], rows[i + 4]);
    }
    for (int i = 0; i < 8; ++i) rows[i] = mixed[i];
  }
}

// The same with elements of two bytes.
template <class Take>
inline void transpose(const uint16_t* from, const int64_t* at, const Take& take) {
  for (int first = 0; first < 16; first += 8) {
    uint16x8_t upper[8], lower[8];
    for (int row = 0; row < 8; ++row) {
      upper[row] = vld1q_u16(from + at[row] + first);
      lower[row] = vld1q_u16(from + at[row + 8] + first);
    }
    transpose_eight(upper);
    transpose_eight(lower);
    for (int column = 0; column < 8; ++column) {
      uint16_t elements[16];
      vst1q_u16(elements, upper[column]);
      vst1q_u16(elements + 8, lower[column]);
      take(first + column, elements);
    }
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
