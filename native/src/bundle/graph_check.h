// Whether a graph of a bundle is one that pilotfish may run: made before ONNX Runtime sees its bytes. A graph can do
// nothing but compute its outputs from its inputs and the bundle's own tensors, with bounds on memory and time.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/bundle_files.h"
#include "bundle/graph_places.h"
#include "bundle/manifest.h"

namespace pilotfish {

// A tensor that a graph may refer to.
struct GraphWeight {
  std::string_view name;  // in the graph
  const TensorEntry* tensor;
  std::string_view file;  // that it is in
};

// Those of a graph of this model or head, which must outlive them.
std::vector<GraphWeight> weights_of(const ModelEntry& model);
std::vector<GraphWeight> weights_of(const HeadEntry& head);

// Throws PF_BUNDLE_CORRUPT, whose message names the file, the node and what is allowed.
void check_graph(const std::filesystem::path& path, std::string_view bytes, const std::vector<GraphWeight>& weights);

// The first node of a checked graph that ONNX Runtime's CUDA provider needs a kernel of its own for, as "Gather
// (Gather.41)"; empty where there is none.
std::string first_provider_node(std::string_view bytes);

// The bytes of a graph's file, hashed and checked, and where its weights are. A session is made from these bytes, so
// that what was checked is what runs. Throws also what check_file() throws.
PlacedGraph read_graph(const BundleSource& source, const FileEntry& entry, const std::vector<GraphWeight>& weights);

}  // namespace pilotfish
