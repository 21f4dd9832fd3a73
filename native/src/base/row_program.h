// The programs of the operator RowSteps (GRAPH.md): a short list of steps that make values of a row from its inputs.
// They are read and checked here, once, for all who run them. Knows nothing about ONNX Runtime and about devices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace pilotfish {

inline constexpr size_t kMostRowInputs = 24;  // rows and vectors together
inline constexpr size_t kMostRowOutputs = 8;
inline constexpr size_t kMostRowSteps = 256;
inline constexpr int64_t kMostRowColumns = int64_t{1} << 24;  // of a value, and elements that a step goes through
inline constexpr int64_t kRowChunkColumns = 2048;             // of a program whose columns do not depend on each other

// The numbers are the bundle's. An elementwise step makes [n0, n1, n2] from operands of that shape.
enum class RowStepKind : int32_t {
  kCopy,      // a
  kAbs,       // |a|
  kExp,       // e^a
  kLog,       // ln a
  kSqrt,      // sqrt a
  kSigmoid,   // 1 / (1 + e^-a)
  kTanh,      // tanh a
  kErf,       // erf a
  kGelu,      // a (1 + erf(a / sqrt 2)) / 2
  kGeluTanh,  // its approximation with tanh
  kAdd,       // a + b
  kSub,       // a - b
  kMul,       // a b
  kDiv,       // a / b
  kMax,       // a > b ? a : b
  kMin,       // a < b ? a : b
  kLess,      // a < b ? 1 : 0
  kNotLess,   // a < b ? 0 : 1
  kFma,       // a b + c, rounded once
  kSelect,    // c >= 0.5 ? a : b
  kJoin,      // [n0, n1, first + rest] from a [n0, n1, first] and b [n0, n1, rest]
  kDot,       // [n0, n1]: sums of a b over the last axis
  kLargest,   // [n0, n1]: maxima of a over the last axis
  kCount
};

struct RowOperand {
  enum class Source : int32_t { kNone, kNumber, kInput, kStep };

  Source source = Source::kNone;
  int32_t index = 0;  // of the input or of the step that made the value
  float number = 0;
  int32_t offset = 0;
  std::array<int32_t, 3> strides = {};  // element (i0, i1, i2) is at offset + i0 s0 + i1 s1 + i2 s2

  friend bool operator==(const RowOperand&, const RowOperand&) = default;
};

struct RowStep {
  RowStepKind kind;
  std::array<int32_t, 3> dims;
  int32_t num_first = 0;  // of a join: columns of its first operand
  std::array<RowOperand, 3> operands = {};
  int32_t output = -1;  // that it makes, or -1 where its value is in `slot`
  int32_t slot = 0;     // first element of its value in the scratch memory of a row

  int32_t width() const noexcept;  // of its value
};

struct RowProgram {
  int32_t num_row_inputs = 0;  // the first inputs, f32 [num_tokens, width]; the others are vectors, f32 [width]
  std::vector<int32_t> input_widths;
  std::vector<int32_t> output_widths;
  std::vector<RowStep> steps;
  int64_t num_scratch = 0;    // elements of a row's scratch memory; of a chunk's, where the program is columnwise
  uint64_t num_elements = 0;  // that all steps together go through in a row
  // Column k of each value depends on column k of other values alone: num_columns of them, which may be done a chunk of
  // kRowChunkColumns at a time.
  bool is_columnwise = false;
  int32_t num_columns = 0;
};

// As the attributes of a node have it. A step is 19 integers: its kind, n0, n1, n2, and for each of a, b, c a source,
// an offset and three strides. Source 0: none, and for c of a join the offset is the columns of a; 1: the number whose
// bits the offset has; k + 2: value k, of the inputs first and then of the steps.
struct RowProgramText {
  int64_t num_row_inputs;
  std::span<const int64_t> widths;  // of the inputs
  std::span<const int64_t> steps;
  std::span<const int64_t> outputs;  // the steps whose values the outputs are
};
inline constexpr size_t kRowStepIntegers = 19;

// Throws std::invalid_argument, which names the step and what is wrong: everything that a program reads and writes is
// inside of what it was given.
RowProgram read_row_program(const RowProgramText& text);

// How many of a, b, c a kind of step reads.
int num_operands(RowStepKind kind) noexcept;

}  // namespace pilotfish
