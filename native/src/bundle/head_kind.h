// The kinds of heads, and all that loading one needs to know of its kind. GRAPH.md has the graphs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace pilotfish {

// How a head's graphs make a tree: one pass scores every level (`heads`), each level is a pass of its own graph over
// the states of the level before (`stage.{i}`), or all levels are passes of a decoder layer with a cache (`features`,
// `step`).
enum class HeadGraphs { kHeads, kStages, kLayer };

struct HeadKind {
  const char* name;  // in manifests
  HeadGraphs graphs;
};

inline constexpr std::array<HeadKind, 5> kHeadKinds{{{"medusa", HeadGraphs::kHeads},
                                                     {"mlp_speculator", HeadGraphs::kStages},
                                                     {"eagle", HeadGraphs::kLayer},
                                                     {"eagle3", HeadGraphs::kLayer},
                                                     {"mtp", HeadGraphs::kLayer}}};

// Whether a pass runs one of the graphs, each of which has an output layer.
constexpr bool passes_are_stages(HeadGraphs graphs) { return graphs == HeadGraphs::kStages; }

inline std::vector<std::string> graph_roles(HeadGraphs graphs, int32_t num_predictions) {
  if (graphs == HeadGraphs::kHeads) return {"heads"};
  if (graphs == HeadGraphs::kLayer) return {"features", "step"};
  std::vector<std::string> stages;
  for (int32_t stage = 0; stage < num_predictions; ++stage) stages.push_back("stage." + std::to_string(stage));
  return stages;
}

}  // namespace pilotfish
