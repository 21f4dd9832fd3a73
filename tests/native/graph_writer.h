// Writes graph files for tests, right and wrong ones: protocol buffers by field
// number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace proto {

inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(0x80 | (value & 0x7f));
  return bytes + static_cast<char>(value);
}
inline std::string number(uint32_t field, uint64_t value) { return varint(field << 3) + varint(value); }
inline std::string bytes(uint32_t field, const std::string& content) {
  return varint(field << 3 | 2) + varint(content.size()) + content;
}

struct Dim {
  int64_t size;  // -1: rows
};

inline std::string port(const std::string& name, const std::vector<Dim>& dims, int type = 1) {
  std::string shape;
  for (const Dim dim : dims) shape += bytes(1, dim.size < 0 ? bytes(2, "rows") : number(1, uint64_t(dim.size)));
  return bytes(1, name) + bytes(2, bytes(1, number(1, type) + bytes(2, shape)));
}

inline std::string attribute(const std::string& name, int64_t value) {
  return bytes(1, name) + number(3, uint64_t(value)) + number(20, 2);
}

inline std::string attribute(const std::string& name, const std::vector<int64_t>& values) {
  std::string packed;
  for (const int64_t value : values) packed += varint(uint64_t(value));
  return bytes(1, name) + bytes(8, packed) + number(20, 7);
}

inline std::string node(const std::string& type, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::vector<std::string>& attributes = {},
                        const std::string& domain = "") {
  std::string message;
  for (const std::string& input : inputs) message += bytes(1, input);
  for (const std::string& output : outputs) message += bytes(2, output);
  message += bytes(3, type + ".7") + bytes(4, type) + bytes(7, domain);
  for (const std::string& item : attributes) message += bytes(5, item);
  return message;
}

inline std::string shape_fields(const std::vector<int64_t>& dims) {
  std::string message;
  for (const int64_t dim : dims) message += number(1, uint64_t(dim));
  return message;
}

inline std::string external(const std::string& name, int type, const std::vector<int64_t>& dims,
                            const std::string& location, const std::string& offset, const std::string& length) {
  const auto entry = [](const std::string& key, const std::string& value) {
    return bytes(13, bytes(1, key) + bytes(2, value));
  };
  return shape_fields(dims) + number(2, type) + bytes(8, name) + entry("location", location) + entry("offset", offset) +
         entry("length", length) + number(14, 1);
}

// A tensor of int64 in the graph's file.
inline std::string integers(const std::string& name, const std::vector<int64_t>& values) {
  const std::string data(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
  return shape_fields({int64_t(values.size())}) + number(2, 7) + bytes(8, name) + bytes(9, data);
}

// One float.
inline std::string scalar(const std::string& name) { return number(2, 1) + bytes(8, name) + bytes(9, "abcd"); }

struct Graph {
  std::vector<std::string> nodes, initializers, inputs, outputs;
  std::string more_graph = {}, more_model = {};  // further fields
  uint64_t ir_version = 10, opset = 20;

  std::string message() const {
    std::string graph;
    for (const std::string& item : nodes) graph += bytes(1, item);
    for (const std::string& item : initializers) graph += bytes(5, item);
    for (const std::string& item : inputs) graph += bytes(11, item);
    for (const std::string& item : outputs) graph += bytes(12, item);
    return graph + more_graph;
  }
  std::string file() const {
    return number(1, ir_version) + bytes(7, message()) + bytes(8, bytes(1, "") + number(2, opset)) +
           bytes(8, bytes(1, "pilotfish") + number(2, 1)) + more_model;
  }
};

}  // namespace proto
