#include "bundle/protobuf.h"

#include <cstring>
#include <limits>

namespace pilotfish {

std::string_view ProtobufReader::take(uint64_t num_bytes) {
  if (num_bytes > rest_.size()) throw GraphError("is cut short, or no protocol buffer");
  const std::string_view taken = rest_.substr(0, num_bytes);
  rest_.remove_prefix(num_bytes);
  return taken;
}

uint64_t ProtobufReader::fixed(uint64_t num_bytes) {
  uint64_t value = 0;  // little-endian, as is every machine that this library runs on
  std::memcpy(&value, take(num_bytes).data(), num_bytes);
  return value;
}

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(take(1).front());
    const uint64_t bits = byte & 0x7f;
    if (shift == 63 && bits > 1) break;
    value |= bits << shift;
    if (byte < 0x80) return value;
  }
  throw GraphError("has a number of more than 64 bits");
}

bool ProtobufReader::next(Field& field) {
  if (rest_.empty()) return false;
  const uint64_t tag = varint();
  if (tag > std::numeric_limits<uint32_t>::max() || tag >> 3 == 0) throw GraphError("has a field without a number");
  field = {.number = static_cast<uint32_t>(tag >> 3), .type = static_cast<Type>(tag & 7), .value = 0, .bytes = {}};
  switch (field.type) {
    case Type::kVarint:
      field.value = varint();
      return true;
    case Type::kFixed64:
      field.value = fixed(8);
      return true;
    case Type::kBytes:
      field.bytes = take(varint());
      return true;
    case Type::kFixed32:
      field.value = fixed(4);
      return true;
  }
  throw GraphError("has a field of a type that graphs have not");
}

}  // namespace pilotfish
