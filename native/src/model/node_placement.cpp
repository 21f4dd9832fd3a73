#include "model/node_placement.h"

#include <memory>
#include <span>

#include "base/status.h"
#include "model/ort.h"

struct OrtEpAssignedNode;
struct OrtEpAssignedSubgraph;

namespace pilotfish {
namespace {

// The entries of OrtApi that are used here alone, as in ort_abi.h.
using Part = OrtEpAssignedSubgraph;
using Node = OrtEpAssignedNode;
constexpr ort_abi::Function<407, OrtStatus*(const OrtSession*, const Part* const**, size_t*)> GetAssignment;
constexpr ort_abi::Function<408, OrtStatus*(const Part*, const char**)> GetProvider;
constexpr ort_abi::Function<409, OrtStatus*(const Part*, const Node* const**, size_t*)> GetNodes;
constexpr ort_abi::Function<410, OrtStatus*(const Node*, const char**)> GetName;
constexpr ort_abi::Function<412, OrtStatus*(const Node*, const char**)> GetOperatorType;

void check(const OrtApi* api, OrtStatus* status) {
  if (!status) return;
  const std::unique_ptr<OrtStatus, OrtRelease<ort_abi::ReleaseStatus>> owner(status, {api});
  fail(PF_ORT_FAILED, "ONNX Runtime: ", ort_abi::GetErrorMessage(api, status));
}

std::string describe(const OrtApi* api, const Node* node) {
  const char *type = nullptr, *name = nullptr;
  check(api, GetOperatorType(api, node, &type));
  check(api, GetName(api, node, &name));
  return *name ? std::string(type) + " (" + name + ")" : type;
}

}  // namespace

std::vector<std::string> nodes_elsewhere(const OrtApi* api, const OrtSession* session, const std::string& provider) {
  const Part* const* parts = nullptr;
  size_t num_parts = 0;
  check(api, GetAssignment(api, session, &parts, &num_parts));
  std::vector<std::string> found;
  for (const Part* part : std::span(parts, num_parts)) {
    const char* name = nullptr;
    check(api, GetProvider(api, part, &name));
    if (name == provider) continue;
    const Node* const* nodes = nullptr;
    size_t num_nodes = 0;
    check(api, GetNodes(api, part, &nodes, &num_nodes));
    for (const Node* node : std::span(nodes, num_nodes)) found.push_back(describe(api, node));
  }
  return found;
}

}  // namespace pilotfish
