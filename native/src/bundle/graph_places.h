// Where ONNX Runtime finds the weights of a graph. The files of a bundle in a hub's cache are links into its folder
// `blobs`, and ONNX Runtime (seen with 1.32) follows no link out of the folder that it is given. Such a graph is made
// to name the files where they are, below the cache.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pilotfish {

// A graph's checked bytes, and the folder that its references to files begin in.
struct PlacedGraph {
  std::string bytes;
  std::filesystem::path folder;
};

// `bytes` are of a checked graph that refers to no other files than those, which are in `folder`.
PlacedGraph place_weights(const std::filesystem::path& folder, std::string bytes,
                          const std::vector<std::string_view>& files);

}  // namespace pilotfish
