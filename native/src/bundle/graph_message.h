// One message of a graph file, read by its table of fields: a field that the table does not have, of another type, or
// twice where it may be there once, is an error. ONNX Runtime's reader joins or drops such fields, so that it could see
// another graph than the one that was checked.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "bundle/protobuf.h"

namespace pilotfish {

struct MessageField {
  enum class Kind { kNumber, kFloat, kBytes, kNumbers, kFloats, kDoubles, kMessages };

  uint32_t number;
  const char* name;
  Kind kind;
};

class MessageReader {
 public:
  // `what` names the message in errors, "tensor" for example.
  MessageReader(const char* what, std::span<const MessageField> fields, std::string_view message)
      : what_(what), fields_(fields), reader_(message) {}

  // Whether there was another field, which is one of the table's and of its kind.
  bool next() {
    if (!reader_.next(field_)) return false;
    const MessageField& known = find();
    const bool is_packed = field_.type == ProtobufReader::Type::kBytes && is_repeated_number(known.kind);
    if (!is_packed && field_.type != type_of(known.kind)) wrong(std::string(known.name) + " of another type");
    if (known.kind == MessageField::Kind::kMessages || is_repeated_number(known.kind)) return true;
    const uint64_t bit = uint64_t{1} << known.number;
    if ((seen_ & bit) != 0) wrong(std::string(known.name) + " twice");
    seen_ |= bit;
    return true;
  }

  uint32_t number() const noexcept { return field_.number; }
  bool has_seen(uint32_t number) const noexcept { return ((seen_ >> number) & 1) != 0; }
  uint64_t value() const noexcept { return field_.value; }
  std::string_view bytes() const noexcept { return field_.bytes; }
  int32_t int32() const {
    const auto value = static_cast<int64_t>(field_.value);
    if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
      wrong("a number that is too large");
    }
    return static_cast<int32_t>(value);
  }
  std::string_view name() const {
    constexpr size_t kMostBytes = 256;
    if (field_.bytes.size() > kMostBytes) wrong("a name of more than 256 bytes");
    return field_.bytes;
  }
  // Calls `add` with each integer of a repeated field, packed or not.
  template <typename Add>
  void integers(const Add& add) const {
    if (field_.type == ProtobufReader::Type::kVarint) return add(static_cast<int64_t>(field_.value));
    for (ProtobufReader packed(field_.bytes); !packed.at_end();) add(static_cast<int64_t>(packed.varint()));
  }
  [[noreturn]] void wrong(const std::string& found) const { throw GraphError("has a wrong " + what_ + ": " + found); }

 private:
  static bool is_repeated_number(MessageField::Kind kind) noexcept {
    using enum MessageField::Kind;
    return kind == kNumbers || kind == kFloats || kind == kDoubles;
  }
  static ProtobufReader::Type type_of(MessageField::Kind kind) noexcept {
    switch (kind) {
      case MessageField::Kind::kNumber:
      case MessageField::Kind::kNumbers:
        return ProtobufReader::Type::kVarint;
      case MessageField::Kind::kFloat:
      case MessageField::Kind::kFloats:
        return ProtobufReader::Type::kFixed32;
      case MessageField::Kind::kDoubles:
        return ProtobufReader::Type::kFixed64;
      default:
        return ProtobufReader::Type::kBytes;
    }
  }
  const MessageField& find() const {
    for (const MessageField& known : fields_) {
      if (known.number == field_.number) return known;
    }
    std::string names;
    for (const MessageField& known : fields_) names += (names.empty() ? "" : ", ") + std::string(known.name);
    wrong("the field " + std::to_string(field_.number) + "; allowed are " + names);
  }

  const std::string what_;
  const std::span<const MessageField> fields_;
  ProtobufReader reader_;
  ProtobufReader::Field field_{};
  uint64_t seen_ = 0;
};

}  // namespace pilotfish
