// Which provider ONNX Runtime gave each node of a session to.
#pragma once

#include <string>
#include <vector>

#include "base/ort_abi.h"

namespace pilotfish {

// The first version of ONNX Runtime's API that tells; what to set in the session's options for it.
inline constexpr uint32_t kPlacementApiVersion = 24;
inline constexpr const char* kRecordPlacement = "session.record_ep_graph_assignment_info";

// Nodes that `provider` does not run, as "Det (name of the node)". `api` is of kPlacementApiVersion. Throws
// PF_ORT_FAILED.
std::vector<std::string> nodes_elsewhere(const OrtApi* api, const OrtSession* session, const std::string& provider);

}  // namespace pilotfish
