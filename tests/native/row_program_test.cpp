// Random lists of integers as programs of RowSteps: most are refused, and what
// is read stays inside of its memory, which the address sanitizer watches; a
// row's bits do not depend on the rows beside it.
#include "base/row_program.h"

#include <cstring>
#include <memory>
#include <stdexcept>

#include "check.h"
#include "random_row_programs.h"
#include "row_steps.h"

namespace {

using pilotfish::RowProgram;
using row_programs::Random;
using row_programs::random_text;
using row_programs::Text;

constexpr int64_t kRows = 3;

// Memory that ends where the values end.
std::unique_ptr<float[]> values(int64_t count, Random& random) {
  auto made = std::make_unique<float[]>(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) made[static_cast<size_t>(i)] = random.real();
  return made;
}

void run(const RowProgram& program, Random& random) {
  std::vector<std::unique_ptr<float[]>> owners;
  pilotfish::RowTensors tensors = {.num_rows = kRows, .inputs = {}, .outputs = {}};
  for (size_t i = 0; i < program.input_widths.size(); ++i) {
    const bool is_row = i < static_cast<size_t>(program.num_row_inputs);
    tensors.inputs[i] = owners.emplace_back(values(program.input_widths[i] * (is_row ? kRows : 1), random)).get();
  }
  for (size_t i = 0; i < program.output_widths.size(); ++i) {
    tensors.outputs[i] = owners.emplace_back(values(program.output_widths[i] * kRows, random)).get();
  }
  const pilotfish::Parallel alone(nullptr, nullptr, 1);
  pilotfish::row_steps(program, tensors, alone);

  pilotfish::RowTensors last = tensors;
  last.num_rows = 1;
  for (size_t i = 0; i < static_cast<size_t>(program.num_row_inputs); ++i) {
    last.inputs[i] += (kRows - 1) * program.input_widths[i];
  }
  for (size_t i = 0; i < program.output_widths.size(); ++i) {
    last.outputs[i] = owners.emplace_back(values(program.output_widths[i], random)).get();
  }
  pilotfish::row_steps(program, last, alone);
  for (size_t i = 0; i < program.output_widths.size(); ++i) {
    const auto width = static_cast<size_t>(program.output_widths[i]);
    CHECK_EQ(std::memcmp(last.outputs[i], tensors.outputs[i] + (kRows - 1) * width, width * sizeof(float)), 0);
  }
}

void test_random_programs() {
  Random random;
  int num_run = 0, num_refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const Text text = random_text(random);
    try {
      const RowProgram program = text.read();
      ++num_run;
      if (program.num_elements < 4096) run(program, random);
    } catch (const std::invalid_argument& error) {
      CHECK(std::strlen(error.what()) > 0);
      ++num_refused;
    }
  }
  CHECK(num_run > 1000);
  CHECK(num_refused > 1000);
}

// Values of 16: a chain of steps needs one place, as each hands its own to the
// next.
void test_places() {
  Text text{.num_row_inputs = 1, .widths = {16}, .steps = {}, .outputs = {3}};
  for (int64_t i = 0; i < 4; ++i)
    text.steps.insert(text.steps.end(), {1, 1, 4, 4, 2 + i, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK_EQ(text.read().num_scratch, 16);
  text.steps[19 + 6] = 0;  // reads its first line four times, so that its own place is another
  text.steps[19 + 7] = 0;
  CHECK_EQ(text.read().num_scratch, 32);
  text.outputs = {0, 1, 2, 3};
  CHECK_EQ(text.read().num_scratch, 0);
}

}  // namespace

int main() {
  test_random_programs();
  test_places();
  return check::result();
}
