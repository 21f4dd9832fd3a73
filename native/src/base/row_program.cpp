#include "base/row_program.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace pilotfish {
namespace {

using OperandSource = RowOperand::Source;

constexpr bool is_elementwise(RowStepKind kind) noexcept { return kind < RowStepKind::kJoin; }
constexpr bool is_reduction(RowStepKind kind) noexcept {
  return kind == RowStepKind::kDot || kind == RowStepKind::kLargest;
}

template <typename... Parts>
void require(bool holds, const Parts&... parts) {
  if (holds) return;
  std::ostringstream text;
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

int32_t bounded(const char* name, int64_t value, int64_t least, int64_t most) {
  require(value >= least && value <= most, name, " is ", value, ", not in ", least, "..", most);
  return static_cast<int32_t>(value);
}

// One step of a program, whose earlier steps are there.
class StepReader {
 public:
  StepReader(const RowProgram& program, std::span<const int64_t> integers) : program_(program), integers_(integers) {}

  RowStep read() const {
    RowStep step{.kind = static_cast<RowStepKind>(
                     bounded("its kind", integers_[0], 0, static_cast<int64_t>(RowStepKind::kCount) - 1)),
                 .dims = dims()};
    for (size_t i = 0; i < 3; ++i) step.operands[i] = operand(i);
    if (step.kind == RowStepKind::kJoin) {
      step.num_first = bounded("the columns of a join's first part", integers_[15], 1, step.dims[2] - 1);
    }
    for (int i = 0; i < 3; ++i) check(step, i);
    return step;
  }

 private:
  std::array<int32_t, 3> dims() const {
    std::array<int32_t, 3> dims;
    int64_t count = 1;
    for (size_t axis = 0; axis < 3; ++axis) {
      dims[axis] = bounded("a size", integers_[1 + axis], 1, kMostRowColumns);
      count *= dims[axis];
      require(count <= kMostRowColumns, "it goes through more than ", kMostRowColumns, " elements");
    }
    return dims;
  }

  RowOperand operand(size_t number) const {
    const std::span<const int64_t> part = integers_.subspan(4 + 5 * number, 5);
    const int64_t num_inputs = std::ssize(program_.input_widths);
    const int32_t source = bounded("a source", part[0], 0, 1 + num_inputs + std::ssize(program_.steps));
    RowOperand result;
    if (source == 1) {
      const int64_t bits = part[1];
      require(bits >= 0 && bits <= std::numeric_limits<uint32_t>::max(), "a number has the bits ", bits);
      result.source = OperandSource::kNumber;
      result.number = std::bit_cast<float>(static_cast<uint32_t>(bits));
    } else if (source > 1) {
      const bool is_input = source - 2 < num_inputs;
      result.source = is_input ? OperandSource::kInput : OperandSource::kStep;
      result.index = static_cast<int32_t>(source - 2 - (is_input ? 0 : num_inputs));
      result.offset = bounded("an offset", part[1], 0, kMostRowColumns);
    }
    for (size_t axis = 0; axis < 3; ++axis) {
      result.strides[axis] = bounded("a stride", part[2 + axis], 0, source > 1 ? kMostRowColumns : 0);
    }
    return result;
  }

  // That an operand is there if the step reads it, and that all it reads is inside the value.
  void check(const RowStep& step, int number) const {
    const RowOperand& operand = step.operands[static_cast<size_t>(number)];
    const bool is_read = number < num_operands(step.kind);
    require(is_read == (operand.source != OperandSource::kNone), "it has ", is_read ? "too few" : "too many",
            " operands");
    if (operand.source != OperandSource::kInput && operand.source != OperandSource::kStep) return;
    std::array<int32_t, 3> dims = step.dims;
    if (step.kind == RowStepKind::kJoin) dims[2] = number == 0 ? step.num_first : step.dims[2] - step.num_first;
    int64_t last = operand.offset;
    for (size_t axis = 0; axis < 3; ++axis) last += int64_t{dims[axis] - 1} * operand.strides[axis];
    const auto index = static_cast<size_t>(operand.index);
    const int64_t width =
        operand.source == OperandSource::kInput ? program_.input_widths[index] : program_.steps[index].width();
    require(last < width, "it reads element ", last, " of a value of ", width);
  }

  const RowProgram& program_;
  const std::span<const int64_t> integers_;
};

void read_outputs(const RowProgramText& text, RowProgram& program) {
  require(!text.outputs.empty() && text.outputs.size() <= kMostRowOutputs, "a program has ", text.outputs.size(),
          " outputs, not 1..", kMostRowOutputs);
  for (size_t i = 0; i < text.outputs.size(); ++i) {
    RowStep& step =
        program.steps[static_cast<size_t>(bounded("an output", text.outputs[i], 0, std::ssize(program.steps) - 1))];
    require(step.output < 0, "two outputs are step ", text.outputs[i]);
    step.output = static_cast<int32_t>(i);
    program.output_widths.push_back(step.width());
  }
}

// Whether an operand that is a step's value is read element by element, as the step writes its own.
bool is_identity(const RowStep& step, const RowOperand& operand) noexcept {
  const auto [n0, n1, n2] = step.dims;
  const auto& strides = operand.strides;
  return operand.offset == 0 && (n2 == 1 || strides[2] == 1) && (n1 == 1 || strides[1] == n2) &&
         (n0 == 1 || strides[0] == n1 * n2);
}

bool is_columnwise(const RowProgram& program) noexcept {
  return std::ranges::all_of(program.steps, [&](const RowStep& step) {
    if (!is_elementwise(step.kind) || step.dims[0] != 1 || step.dims[1] != 1) return false;
    if (step.dims[2] != program.steps.front().dims[2]) return false;
    return std::ranges::all_of(step.operands, [&](const RowOperand& operand) {
      if (operand.source == OperandSource::kStep) return operand.offset == 0 && operand.strides[2] == 1;
      return operand.strides[2] <= 1;
    });
  });
}

// Gives the values of steps that are no outputs their places: each is there until its last reader has run, and one that
// is read element by element hands its place to its last reader.
class Places {
 public:
  explicit Places(RowProgram& program) : program_(program), last_readers_(program.steps.size(), -1) {
    for (size_t i = 0; i < program.steps.size(); ++i) {
      for (const RowOperand& operand : program.steps[i].operands) {
        if (operand.source == OperandSource::kStep)
          last_readers_[static_cast<size_t>(operand.index)] = static_cast<int>(i);
      }
    }
  }

  void run() {
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      RowStep& step = program_.steps[i];
      const int32_t handed = step.output < 0 ? handed_to(i) : -1;
      if (handed >= 0) {
        step.slot = program_.steps[static_cast<size_t>(handed)].slot;
      } else if (step.output < 0) {
        step.slot = take(program_.is_columnwise ? kRowChunkColumns : step.width());
      }
      for (size_t k = 0; k <= i; ++k) {
        const bool has_ended = last_readers_[k] == static_cast<int>(i) || (k == i && last_readers_[k] < 0);
        if (has_ended && static_cast<int32_t>(k) != handed && program_.steps[k].output < 0) {
          give_back(program_.steps[k].slot);
        }
      }
    }
  }

 private:
  struct Slot {
    int64_t first, size;
    bool is_free;
  };

  // The step whose place step i takes over, or -1.
  int32_t handed_to(size_t i) const {
    const RowStep& step = program_.steps[i];
    if (!is_elementwise(step.kind)) return -1;
    for (const RowOperand& operand : step.operands) {
      if (operand.source != OperandSource::kStep) continue;
      const RowStep& other = program_.steps[static_cast<size_t>(operand.index)];
      const bool ends_here = last_readers_[static_cast<size_t>(operand.index)] == static_cast<int>(i);
      const bool is_same = std::ranges::all_of(step.operands, [&](const RowOperand& item) {
        return item.source != OperandSource::kStep || item.index != operand.index || is_identity(step, item);
      });
      if (other.output < 0 && ends_here && is_same && other.width() == step.width()) return operand.index;
    }
    return -1;
  }

  int32_t take(int64_t size) {
    Slot* best = nullptr;
    for (Slot& slot : slots_) {
      if (slot.is_free && slot.size >= size && (!best || slot.size < best->size)) best = &slot;
    }
    if (!best) {
      best = &slots_.emplace_back(Slot{program_.num_scratch, size, true});
      program_.num_scratch += size;
      require(program_.num_scratch <= kMostRowColumns, "its values in between have more than ", kMostRowColumns,
              " elements");
    }
    best->is_free = false;
    return static_cast<int32_t>(best->first);
  }

  void give_back(int32_t first) { std::ranges::find(slots_, first, &Slot::first)->is_free = true; }

  RowProgram& program_;
  std::vector<int> last_readers_;
  std::vector<Slot> slots_;
};

}  // namespace

int num_operands(RowStepKind kind) noexcept {
  using enum RowStepKind;
  if (kind == kLargest || kind < kAdd) return 1;
  return kind == kFma || kind == kSelect ? 3 : 2;
}

int32_t RowStep::width() const noexcept { return dims[0] * dims[1] * (is_reduction(kind) ? 1 : dims[2]); }

RowProgram read_row_program(const RowProgramText& text) {
  RowProgram program;
  require(!text.widths.empty() && text.widths.size() <= kMostRowInputs, "a program has ", text.widths.size(),
          " inputs, not 1..", kMostRowInputs);
  program.num_row_inputs = bounded("row_inputs", text.num_row_inputs, 1, std::ssize(text.widths));
  for (const int64_t width : text.widths) {
    program.input_widths.push_back(bounded("a width", width, 1, kMostRowColumns));
  }
  const size_t num_steps = text.steps.size() / kRowStepIntegers;
  require(num_steps >= 1 && num_steps <= kMostRowSteps && text.steps.size() % kRowStepIntegers == 0, "a program has ",
          text.steps.size(), " integers for its steps, not ", kRowStepIntegers, " for each of 1..", kMostRowSteps);
  for (size_t i = 0; i < num_steps; ++i) {
    try {
      program.steps.push_back(StepReader(program, text.steps.subspan(i * kRowStepIntegers, kRowStepIntegers)).read());
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("step " + std::to_string(i) + ": " + error.what());
    }
    const auto [n0, n1, n2] = program.steps.back().dims;
    program.num_elements += static_cast<uint64_t>(n0) * static_cast<uint64_t>(n1) * static_cast<uint64_t>(n2);
  }
  read_outputs(text, program);
  program.is_columnwise = is_columnwise(program);
  program.num_columns = program.steps.front().dims[2];
  Places(program).run();
  return program;
}

}  // namespace pilotfish
