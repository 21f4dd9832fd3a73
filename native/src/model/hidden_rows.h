// The residual streams that a target gives out for a head, in the memory of whatever runs both.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/float_rows.h"
#include "model/row_port.h"
#include "model/session.h"

namespace pilotfish {

// Streams of the asked rows of a pass, valid until the model's next pass.
struct Hidden {
  const FloatRows& streams;  // a tap a part, those of the manifest in its order
  int32_t num_rows;
};

// Of the target's output, and of the head's input.
inline std::string stream_name(int32_t tap) { return "aux_hidden." + std::to_string(tap); }

class HiddenRows {
 public:
  // Passes ask for max_rows rows at most, whose numbers are in `rows`, where the session runs. It must outlive this.
  HiddenRows(Session& session, std::span<const int32_t> taps, int32_t width, int32_t max_rows, void* rows);

  static uint64_t num_bytes(uint64_t num_taps, uint64_t width, uint64_t max_rows) noexcept {
    return (num_taps * width * sizeof(float) + sizeof(int32_t)) * max_rows;
  }

  // The next pass gives the streams of so many rows.
  void bind(int32_t num_hidden);
  Hidden view() const noexcept { return {streams_, num_bound_}; }

 private:
  RowPort rows_;
  FloatRows streams_;             // [num_taps, max_rows, width]
  std::vector<RowPort> outputs_;  // a tap each
  int32_t num_bound_ = 0;
};

}  // namespace pilotfish
