#include "bundle/graph_places.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <span>

#include "base/platform/text.h"
#include "bundle/bundle_files.h"
#include "bundle/protobuf.h"

namespace pilotfish {
namespace {

// The numbers of the fields that lead from a model to what says where an initializer is: graph, initializer,
// external_data, whose entries have a key and a value.
constexpr std::array<uint32_t, 3> kEntries = {7, 5, 13};
constexpr uint32_t kKey = 1, kValue = 2;

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void append_bytes(std::string& out, uint32_t number, std::string_view bytes) {
  append_varint(out, uint64_t{number} << 3 | static_cast<uint64_t>(ProtobufReader::Type::kBytes));
  append_varint(out, bytes.size());
  out += bytes;
}

// The message with `change` of the bytes that `path` leads to in place of these; all else is copied.
std::string with_changes(std::string_view message, std::span<const uint32_t> path,
                         const std::function<std::string(std::string_view)>& change) {
  std::string out;
  ProtobufReader reader(message);
  for (ProtobufReader::Field field; !reader.at_end();) {
    const std::string_view from = reader.rest();
    reader.next(field);
    if (field.number != path.front() || field.type != ProtobufReader::Type::kBytes) {
      out += from.substr(0, from.size() - reader.rest().size());
      continue;
    }
    const bool is_last = path.size() == 1;
    append_bytes(out, field.number, is_last ? change(field.bytes) : with_changes(field.bytes, path.subspan(1), change));
  }
  return out;
}

using Places = std::map<std::string, std::filesystem::path, std::less<>>;

// An entry that names a file of `places`, with where that is below `cache` in place of the name; others as they are.
std::string placed_entry(std::string_view entry, const Places& places, const std::filesystem::path& cache) {
  std::string_view key, value;
  ProtobufReader reader(entry);
  for (ProtobufReader::Field field; reader.next(field);) (field.number == kKey ? key : value) = field.bytes;
  const auto found = places.find(value);
  if (key != "location" || found == places.end()) return std::string(entry);
  std::string placed;
  append_bytes(placed, kKey, key);
  append_bytes(placed, kValue, platform::text_of_path(found->second.lexically_relative(cache)));
  return placed;
}

}  // namespace

PlacedGraph place_weights(const std::filesystem::path& folder, std::string bytes,
                          const std::vector<std::string_view>& files) {
  const std::filesystem::path own = std::filesystem::canonical(folder.empty() ? "." : folder);
  Places places;
  for (const std::string_view file : files) places.emplace(file, resolved_file(folder, std::string(file)));
  const auto elsewhere =
      std::ranges::find_if(places, [&](const auto& place) { return place.second.parent_path() != own; });
  if (elsewhere == places.end()) return {std::move(bytes), own};
  const std::filesystem::path cache = elsewhere->second.parent_path().parent_path();
  return {with_changes(bytes, kEntries, [&](std::string_view entry) { return placed_entry(entry, places, cache); }),
          cache};
}

}  // namespace pilotfish
