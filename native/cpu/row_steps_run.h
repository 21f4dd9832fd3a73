// `row_steps` for one instruction set: each step goes through its elements sixteen at a time. Written with simd.h only.
#pragma once

#include "row_functions.h"
#include "row_steps_kernels.h"

namespace pilotfish::PILOTFISH_SIMD {

struct Operand {
  const float* data = nullptr;
  std::array<int32_t, 3> strides = {};

  const float* line(int64_t i0, int64_t i1) const { return data + i0 * strides[0] + i1 * strides[1]; }
};

// A step with its operands and its value where they are in memory.
struct Line {
  std::array<Operand, 3> operands;
  std::array<int64_t, 3> dims;
  float* value;
};

// Elements [0, count) of those that are `stride` apart; the lanes after them are anything.
inline Floats load_apart(const float* from, int64_t stride, int64_t count) {
  if (stride == 0) return broadcast(*from);
  if (stride == 1) return count == kLanes ? load(from) : load_first(from, count);
  alignas(64) float lanes[kLanes] = {};
  for (int64_t lane = 0; lane < count; ++lane) lanes[lane] = from[lane * stride];
  return load(lanes);
}

inline void store_lanes(float* to, Floats value, int64_t count) {
  if (count == kLanes) return store(to, value);
  store_first(to, value, count);
}

template <typename Operation>
void each(const Line& step, const Operation& operation) {
  constexpr bool kIsUnary = requires { operation(zeros()); };
  constexpr bool kIsBinary = requires { operation(zeros(), zeros()); };
  const auto& [a, b, c] = step.operands;
  float* to = step.value;
  for (int64_t i0 = 0; i0 < step.dims[0]; ++i0) {
    for (int64_t i1 = 0; i1 < step.dims[1]; ++i1, to += step.dims[2]) {
      const float *from_a = a.line(i0, i1), *from_b = nullptr, *from_c = nullptr;
      if constexpr (!kIsUnary) from_b = b.line(i0, i1);
      if constexpr (!kIsUnary && !kIsBinary) from_c = c.line(i0, i1);
      for (int64_t column = 0; column < step.dims[2]; column += kLanes) {
        const int64_t count = step.dims[2] - column < kLanes ? step.dims[2] - column : kLanes;
        const auto next = [&](const Operand& operand, const float* from) {
          return load_apart(from + column * operand.strides[2], operand.strides[2], count);
        };
        if constexpr (kIsUnary) {
          store_lanes(to + column, operation(next(a, from_a)), count);
        } else if constexpr (kIsBinary) {
          store_lanes(to + column, operation(next(a, from_a), next(b, from_b)), count);
        } else {
          store_lanes(to + column, operation(next(a, from_a), next(b, from_b), next(c, from_c)), count);
        }
      }
    }
  }
}

inline void copy_apart(const Operand& operand, const float* from, int64_t count, float* to) {
  for (int64_t column = 0; column < count; column += kLanes) {
    const int64_t lanes = count - column < kLanes ? count - column : kLanes;
    store_lanes(to + column, load_apart(from + column * operand.strides[2], operand.strides[2], lanes), lanes);
  }
}

inline void join(const Line& step, int64_t num_first) {
  const auto& [a, b, c] = step.operands;
  float* to = step.value;
  for (int64_t i0 = 0; i0 < step.dims[0]; ++i0) {
    for (int64_t i1 = 0; i1 < step.dims[1]; ++i1, to += step.dims[2]) {
      copy_apart(a, a.line(i0, i1), num_first, to);
      copy_apart(b, b.line(i0, i1), step.dims[2] - num_first, to + num_first);
    }
  }
}

// Product k adds to partial sum k % 64; the 64 are then added as a tree.
inline float dot(const Operand& a, const float* from_a, const Operand& b, const float* from_b, int64_t count) {
  Floats sums[4] = {zeros(), zeros(), zeros(), zeros()};
  for (int64_t column = 0; column < count; column += kLanes) {
    const int64_t lanes = count - column < kLanes ? count - column : kLanes;
    Floats product = mul(load_apart(from_a + column * a.strides[2], a.strides[2], lanes),
                         load_apart(from_b + column * b.strides[2], b.strides[2], lanes));
    if (lanes < kLanes) {
      alignas(64) float kept[kLanes];
      store(kept, product);
      product = load_first(kept, lanes);
    }
    Floats& sum = sums[column / kLanes % 4];
    sum = add(sum, product);
  }
  return sum_lanes(add(add(sums[0], sums[2]), add(sums[1], sums[3])));
}

inline float largest(const float* from, int64_t stride, int64_t count) {
  float found = *from;
  for (int64_t i = 1; i < count; ++i) found = from[i * stride] > found ? from[i * stride] : found;
  return found;
}

template <typename Reduction>
void reduce(const Line& step, const Reduction& reduction) {
  float* to = step.value;
  for (int64_t i0 = 0; i0 < step.dims[0]; ++i0) {
    for (int64_t i1 = 0; i1 < step.dims[1]; ++i1) *to++ = reduction(i0, i1);
  }
}

inline void run_functions(RowStepKind kind, const Line& step) {
  using enum RowStepKind;
  switch (kind) {
    case kCopy:
      return each(step, [](Floats a) { return a; });
    case kAbs:
      return each(step, [](Floats a) { return abs(a); });
    case kExp:
      return each(step, [](Floats a) { return exp(a); });
    case kLog:
      return each(step, [](Floats a) { return log(a); });
    case kSqrt:
      return each(step, [](Floats a) { return sqrt(a); });
    case kSigmoid:
      return each(step, [](Floats a) { return sigmoid(a); });
    case kTanh:
      return each(step, [](Floats a) { return tanh(a); });
    case kErf:
      return each(step, [](Floats a) { return erf(a); });
    case kGelu:
      return each(step, [](Floats a) { return gelu(a); });
    default:
      return each(step, [](Floats a) { return gelu_tanh(a); });
  }
}

inline void run_arithmetic(RowStepKind kind, const Line& step) {
  using enum RowStepKind;
  switch (kind) {
    case kAdd:
      return each(step, [](Floats a, Floats b) { return add(a, b); });
    case kSub:
      return each(step, [](Floats a, Floats b) { return sub(a, b); });
    case kMul:
      return each(step, [](Floats a, Floats b) { return mul(a, b); });
    case kDiv:
      return each(step, [](Floats a, Floats b) { return div(a, b); });
    case kMax:
      return each(step, [](Floats a, Floats b) { return max(a, b); });
    case kMin:
      return each(step, [](Floats a, Floats b) { return min(a, b); });
    case kLess:
      return each(step, [](Floats a, Floats b) { return less(a, b); });
    case kNotLess:
      return each(step, [](Floats a, Floats b) { return not_less(a, b); });
    case kFma:
      return each(step, [](Floats a, Floats b, Floats c) { return fma(a, b, c); });
    default:
      return each(step, [](Floats a, Floats b, Floats c) { return select(a, b, c); });
  }
}

inline void run_step(const RowStep& step, const Line& line) {
  const auto& [a, b, c] = line.operands;
  if (step.kind < RowStepKind::kAdd) return run_functions(step.kind, line);
  if (step.kind < RowStepKind::kJoin) return run_arithmetic(step.kind, line);
  if (step.kind == RowStepKind::kJoin) return join(line, step.num_first);
  if (step.kind == RowStepKind::kDot) {
    return reduce(line,
                  [&](int64_t i0, int64_t i1) { return dot(a, a.line(i0, i1), b, b.line(i0, i1), line.dims[2]); });
  }
  reduce(line, [&](int64_t i0, int64_t i1) { return largest(a.line(i0, i1), a.strides[2], line.dims[2]); });
}

inline void run_row_steps(const RowProgram& program, const RowPlaces& places, int64_t first, int64_t count) {
  const auto value_of = [&](const RowStep& step) {
    return step.output >= 0 ? places.outputs[static_cast<size_t>(step.output)] + first : places.scratch + step.slot;
  };
  for (const RowStep& step : program.steps) {
    Line line;
    line.dims = {step.dims[0], step.dims[1], program.is_columnwise ? count : step.dims[2]};
    line.value = value_of(step);
    for (size_t i = 0; i < line.operands.size(); ++i) {
      const RowOperand& from = step.operands[i];
      Operand& operand = line.operands[i];
      operand.strides = from.strides;
      if (from.source == RowOperand::Source::kNumber) operand.data = &from.number;
      if (from.source == RowOperand::Source::kInput) {
        operand.data = places.inputs[static_cast<size_t>(from.index)] + from.offset + first * from.strides[2];
      }
      if (from.source == RowOperand::Source::kStep) {
        operand.data = value_of(program.steps[static_cast<size_t>(from.index)]) + from.offset;
      }
    }
    run_step(step, line);
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
