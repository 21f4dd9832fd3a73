#include "model/head.h"

#include "bundle/graph_check.h"
#include "memory/cuda_memory_plan.h"

namespace pilotfish {

ModelEntry step_entry(const HeadEntry& head) {
  ModelEntry entry{};
  entry.num_layers = 1;
  entry.hidden_size = head.state_size;
  entry.num_heads = head.cache->num_heads;
  entry.num_kv_heads = head.cache->num_kv_heads;
  entry.head_dim = head.cache->head_dim;
  entry.caches = {{entry.num_kv_heads, entry.head_dim}};
  entry.cache_type = head.cache->type;
  entry.max_positions = head.cache->max_positions;
  entry.num_logits = head.num_logits;
  entry.logit_ids = head.logit_ids;
  return entry;
}

Head::Head(std::shared_ptr<const Ort> ort, std::shared_ptr<CudaDevice> device, const BundleSource& source,
           const HeadEntry& entry, std::unique_ptr<WeightsFile> weights, const Model& target, int32_t num_threads)
    : ort_(std::move(ort)),
      device_(std::move(device)),
      folder_(source.folder),
      entry_(entry),
      num_threads_(num_threads),
      target_(target),
      weights_(*ort_, device_,
               {.file = std::move(weights), .tensors = entry_.tensors, .repacked_bytes = cuda_repacked_bytes(entry_)},
               &target.weights()) {
  for (const auto& [role, file] : entry_.graphs) graphs_[role] = read_graph(source, file, weights_of(entry_));
  weights_.wait();  // sessions run as soon as they are made
}

std::unique_ptr<Session> Head::open_session(std::string_view role, const CudaPassLimits& limits) const {
  Session::Graph graph{.file = folder_ / entry_.graphs.find(role)->second.file,
                       .placed = graphs_.find(role)->second,
                       .initializers = {},
                       .num_threads = num_threads_,
                       .limits = limits,
                       .repacked = weights_.repacked()};
  for (const auto& [name, value] : weights_.tensors()) graph.initializers.push_back({name, value.get()});
  for (const SharedTensor& tensor : entry_.shared) {
    graph.initializers.push_back({tensor.name, target_.weights().find(tensor.target.name)});
  }
  return std::make_unique<Session>(ort_, device_, graph);
}

}  // namespace pilotfish
