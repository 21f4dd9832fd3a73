// A reader of the wire format of protocol buffers, for files that nobody has checked. It takes no memory, reads no byte
// twice and knows no message: graph_reader.cpp says which fields there are. No protobuf library is among this library's
// few dependencies, and ONNX Runtime's own is what the reader guards. Stricter than protobuf's: groups, numbers of more
// than 64 bits and fields of another type than expected are errors, where two readers could read two things.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace pilotfish {

// What is wrong with a graph, without its file's name.
class GraphError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class ProtobufReader {
 public:
  enum class Type : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  struct Field {
    uint32_t number;
    Type type;
    uint64_t value;          // of a number
    std::string_view bytes;  // of kBytes
  };

  // `message` must outlive the fields.
  explicit ProtobufReader(std::string_view message) noexcept : rest_(message) {}

  // Whether there was another field. Throws GraphError where the bytes are cut short or no protocol buffer.
  bool next(Field& field);

  bool at_end() const noexcept { return rest_.empty(); }
  // What has not been read.
  std::string_view rest() const noexcept { return rest_; }
  // A bare number, as packed fields have them.
  uint64_t varint();

 private:
  std::string_view take(uint64_t num_bytes);
  uint64_t fixed(uint64_t num_bytes);

  std::string_view rest_;
};

}  // namespace pilotfish
