// RowSteps on the GPU: random programs against double on the host, and a row's bits alone and among others.
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "gpu_test.h"
#include "random_row_programs.h"

namespace pilotfish::cuda::test {
namespace {

using Values = std::vector<double>;

constexpr int64_t kRows = 5;
constexpr double kLargest = 1e3;  // of the results that are compared: exponentials of exponentials differ by more

int failures = 0;

double function_of(RowStepKind kind, double a, double b, double c) {
  using enum RowStepKind;
  switch (kind) {
    case kAbs:
      return std::fabs(a);
    case kExp:
      return std::exp(a);
    case kLog:
      return std::log(a);
    case kSqrt:
      return std::sqrt(a);
    case kSigmoid:
      return 1 / (1 + std::exp(-a));
    case kTanh:
      return std::tanh(a);
    case kErf:
      return std::erf(a);
    case kGelu:
      return a * (1 + std::erf(a / std::sqrt(2.0))) / 2;
    case kGeluTanh:
      return a * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a))) / 2;
    case kAdd:
      return a + b;
    case kSub:
      return a - b;
    case kMul:
      return a * b;
    case kDiv:
      return a / b;
    case kMax:
      return a > b ? a : b;
    case kMin:
      return a < b ? a : b;
    case kLess:
      return a < b;
    case kNotLess:
      return !(a < b);
    case kFma:
      return a * b + c;
    case kSelect:
      return c >= 0.5 ? a : b;
    default:
      return a;
  }
}

/// One row: the values of all steps.
class Oracle {
 public:
  Oracle(const RowProgram& program, std::vector<Values> inputs) : inputs_(std::move(inputs)) {
    for (const RowStep& step : program.steps) steps_.push_back(run(step));
  }
  const Values& value(size_t step) const { return steps_[step]; }

 private:
  double at(const RowOperand& operand, int i0, int i1, int i2) const {
    if (operand.source == RowOperand::Source::kNone) return 0;
    if (operand.source == RowOperand::Source::kNumber) return operand.number;
    const Values& value = (operand.source == RowOperand::Source::kInput ? inputs_ : steps_)[operand.index];
    return value[operand.offset + i0 * operand.strides[0] + i1 * operand.strides[1] + i2 * operand.strides[2]];
  }

  Values run(const RowStep& step) const {
    const auto& [a, b, c] = step.operands;
    Values result;
    for (int i0 = 0; i0 < step.dims[0]; ++i0) {
      for (int i1 = 0; i1 < step.dims[1]; ++i1) {
        double sum = 0, largest = -INFINITY;
        for (int i2 = 0; i2 < step.dims[2]; ++i2) {
          if (step.kind == RowStepKind::kDot) {
            sum += at(a, i0, i1, i2) * at(b, i0, i1, i2);
          } else if (step.kind == RowStepKind::kLargest) {
            largest = std::fmax(largest, at(a, i0, i1, i2));
          } else if (step.kind == RowStepKind::kJoin) {
            result.push_back(i2 < step.num_first ? at(a, i0, i1, i2) : at(b, i0, i1, i2 - step.num_first));
          } else {
            result.push_back(function_of(step.kind, at(a, i0, i1, i2), at(b, i0, i1, i2), at(c, i0, i1, i2)));
          }
        }
        if (step.kind == RowStepKind::kDot) result.push_back(sum);
        if (step.kind == RowStepKind::kLargest) result.push_back(largest);
      }
    }
    return result;
  }

  std::vector<Values> inputs_, steps_;
};

/// A program with inputs on the host and on the device.
class Case {
 public:
  Case(RowProgram program, uint32_t seed) : program_(std::move(program)) {
    for (size_t i = 0; i < program_.input_widths.size(); ++i) {
      host_.push_back(random_floats(static_cast<size_t>(program_.input_widths[i]) * (is_row(i) ? kRows : 1), seed + i));
      device_.push_back(std::make_unique<DeviceArray<float>>(host_.back()));
    }
  }

  /// Every output of rows [first, first + count).
  std::vector<std::vector<float>> run(int64_t first, int64_t count) const {
    RowStepTensors tensors = {.num_rows = count, .inputs = {}, .outputs = {}};
    std::vector<std::unique_ptr<DeviceArray<float>>> outputs;
    for (size_t i = 0; i < device_.size(); ++i) {
      tensors.inputs[i] = device_[i]->get() + (is_row(i) ? first * program_.input_widths[i] : 0);
    }
    for (size_t i = 0; i < program_.output_widths.size(); ++i) {
      outputs.push_back(std::make_unique<DeviceArray<float>>(static_cast<size_t>(count) * program_.output_widths[i]));
      tensors.outputs[i] = outputs.back()->get();
    }
    CUDA_CHECK(launch_row_steps(program_, tensors, nullptr));
    CUDA_CHECK(cudaDeviceSynchronize());
    std::vector<std::vector<float>> found;
    for (const auto& output : outputs) found.push_back(output->read());
    return found;
  }

  void check() const {
    const auto together = run(0, kRows), last = run(kRows - 1, 1);
    for (int64_t row = 0; row < kRows; ++row) {
      const Oracle oracle(program_, inputs_of(row));
      for (size_t k = 0; k < program_.steps.size(); ++k) {
        const int output = program_.steps[k].output;
        if (output >= 0) compare(oracle.value(k), together[output].data() + row * program_.output_widths[output]);
      }
    }
    for (size_t i = 0; i < last.size(); ++i) {
      const size_t width = last[i].size();
      const bool same = !std::memcmp(last[i].data(), together[i].data() + (kRows - 1) * width, width * sizeof(float));
      if (!same) std::printf("a row alone has other bits  FAILED\n");
      failures += !same;
    }
  }

 private:
  bool is_row(size_t i) const { return i < static_cast<size_t>(program_.num_row_inputs); }

  std::vector<Values> inputs_of(int64_t row) const {
    std::vector<Values> inputs;
    for (size_t i = 0; i < host_.size(); ++i) {
      const int64_t width = program_.input_widths[i], first = is_row(i) ? row * width : 0;
      inputs.emplace_back(host_[i].begin() + first, host_[i].begin() + first + width);
    }
    return inputs;
  }

  static void compare(const Values& expected, const float* found) {
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!(std::fabs(expected[i]) < kLargest) || std::isnan(found[i])) continue;
      const double error = std::fabs(found[i] - expected[i]) / (1 + std::fabs(expected[i]));
      if (error < 1e-3) continue;
      std::printf("element %zu is %g, not %g  FAILED\n", i, found[i], expected[i]);
      ++failures;
      return;
    }
  }

  RowProgram program_;
  std::vector<std::vector<float>> host_;
  std::vector<std::unique_ptr<DeviceArray<float>>> device_;
};

/// A step that jumps makes of a rounding error a large one.
bool jumps(const RowProgram& program) {
  for (const RowStep& step : program.steps) {
    const bool is_jump = step.kind == RowStepKind::kLess || step.kind == RowStepKind::kNotLess ||
                         step.kind == RowStepKind::kSelect || step.kind == RowStepKind::kDiv ||
                         step.kind == RowStepKind::kLog;
    if (is_jump && program.steps.size() > 1) return true;
  }
  return false;
}

void check_random_programs() {
  row_programs::Random random;
  int num_run = 0;
  for (uint32_t i = 0; num_run < 1500; ++i) {
    try {
      RowProgram program = row_programs::random_text(random).read();
      if (program.num_elements > 100000 || jumps(program)) continue;
      Case(std::move(program), i).check();
      ++num_run;
    } catch (const std::invalid_argument&) {
      continue;
    }
  }
  std::printf("row steps: %d random programs\n", num_run);
}

/// gelu(gate) * up * vector over columns in chunks, and an RMSNorm of a wide row in shared memory.
void check_wide_rows() {
  const auto read = [](std::vector<int64_t> widths, std::vector<int64_t> steps, int64_t output) {
    const std::vector<int64_t> outputs = {output};
    return read_row_program({1, widths, steps, outputs});
  };
  for (const int64_t n : {2047, 2048, 9000}) {
    Case(read({2 * n, n}, {9,  1, 1, n, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                           12, 1, 1, n, 4, 0, 0, 0, 1, 2, n, 0, 0, 1, 0, 0, 0, 0, 0,  //
                           12, 1, 1, n, 5, 0, 0, 0, 1, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0},
              2),
         1)
        .check();
    Case(read({n, n}, {21, 1, 1, n, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0,  //
                       4,  1, 1, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                       13, 1, 1, n, 2, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                       12, 1, 1, n, 6, 0, 0, 0, 1, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0},
              3),
         2)
        .check();
  }
  std::printf("row steps: wide rows\n");
}

/// x added again and again: as many steps as the smaller kernel's parameters hold, one more, and the most.
void check_long_programs() {
  for (const size_t count : {size_t{44}, size_t{45}, kMostRowSteps}) {
    row_programs::Text text{.num_row_inputs = 1, .widths = {33}, .steps = {}, .outputs = {}};
    for (size_t i = 0; i < count; ++i) {
      const int64_t before = static_cast<int64_t>(i) + 2;  // the value before, which is x at first
      text.steps.insert(text.steps.end(), {10, 1, 1, 33, before, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0});
    }
    text.outputs.push_back(static_cast<int64_t>(count) - 1);
    Case(text.read(), 3).check();
  }
  std::printf("row steps: long programs\n");
}

}  // namespace
}  // namespace pilotfish::cuda::test

int main() {
  using namespace pilotfish::cuda::test;
  check_random_programs();
  check_wide_rows();
  check_long_programs();
  std::printf(failures ? "%d FAILURES\n" : "all row steps tests passed\n", failures);
  return failures ? 1 : 0;
}
