// Random programs of RowSteps, right and wrong ones.
#pragma once

#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include "base/row_program.h"

namespace row_programs {

using pilotfish::RowProgram;
using pilotfish::RowStepKind;

class Random {
 public:
  int64_t below(int64_t count) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(count)); }
  int64_t number() {
    constexpr int64_t kEdges[] = {-1,        0,        1, 2, 15, 16, 17, 1 << 24, (1 << 24) + 1, int64_t{1} << 40,
                                  INT64_MAX, INT64_MIN};
    return below(12) == 0 ? kEdges[below(std::size(kEdges))] : below(5);
  }
  float real() { return static_cast<float>(below(2001) - 1000) / 250.0f; }

 private:
  std::mt19937_64 engine_{7};
};

struct Text {
  int64_t num_row_inputs;
  std::vector<int64_t> widths, steps, outputs;

  // Throws std::invalid_argument.
  RowProgram read() const { return pilotfish::read_row_program({num_row_inputs, widths, steps, outputs}); }
};

inline Text random_text(Random& random) {
  Text text;
  const int64_t num_inputs = 1 + random.below(3);
  text.num_row_inputs = 1 + random.below(num_inputs);
  for (int64_t i = 0; i < num_inputs; ++i) text.widths.push_back(1 + random.below(40));
  const int64_t num_steps = 1 + random.below(6);
  for (int64_t i = 0; i < num_steps; ++i) {
    const int64_t kind = random.below(static_cast<int64_t>(RowStepKind::kCount));
    const int num_operands = pilotfish::num_operands(static_cast<RowStepKind>(kind));
    text.steps.insert(text.steps.end(), {kind, 1 + random.below(3), 1 + random.below(3), 1 + random.below(20)});
    for (int k = 0; k < 3; ++k) {
      const int64_t source = k < num_operands ? 1 + random.below(1 + num_inputs + i) : 0;
      text.steps.push_back(source);
      text.steps.push_back(random.number());
      for (int axis = 0; axis < 3; ++axis) {
        const bool is_read = source > 1 && random.below(2) == 0;
        text.steps.push_back(is_read || random.below(60) == 0 ? random.number() : 0);
      }
    }
  }
  text.outputs.push_back(num_steps - 1);
  if (num_steps > 1 && random.below(2) == 0) text.outputs.push_back(random.below(num_steps - 1));
  return text;
}

}  // namespace row_programs
