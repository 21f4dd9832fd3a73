#include "model/step_graph.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <numeric>

#include "memory/kv_blocks.h"

namespace pilotfish {
namespace {

constexpr auto kInt32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
constexpr auto kUint64 = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64;
constexpr auto kFloat = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;

size_t element_bytes(ONNXTensorElementDataType type) { return type == kUint64 ? 8 : 4; }

// The cache of a model of one layer.
ModelEntry cache_entry(const HeadCacheEntry& cache) {
  ModelEntry entry{};
  entry.num_layers = 1;
  entry.num_heads = cache.num_heads;
  entry.num_kv_heads = cache.num_kv_heads;
  entry.head_dim = cache.head_dim;
  entry.cache_type = cache.type;
  return entry;
}

}  // namespace

uint64_t StepGraph::cache_bytes_per_token(const HeadCacheEntry& cache) noexcept {
  return 2 * cache_row_bytes(cache.type, cache.head_dim) * cache.num_kv_heads;
}

StepGraph::StepGraph(const Head& head, const ModelLimits& limits)
    : ort_(head.ort()),
      limits_(limits),
      state_size_(head.entry().state_size),
      num_logits_(head.entry().num_logits),
      ids_(port("input_ids", kInt32, 0, limits.max_rows)),
      positions_(port("position_ids", kInt32, 0, limits.max_rows)),
      tree_mask_(port("tree_mask", kUint64, 0, limits.max_rows)),
      features_(port("features", kFloat, state_size_, limits.max_rows)),
      seq_starts_(port("seq_starts", kInt32, 0, 2)),
      context_lens_(port("context_lens", kInt32, 0, 1)),
      block_table_(port("block_table", kInt32, num_blocks_for(limits.max_context, limits.block_size), 1)),
      output_rows_(port("output_rows", kInt32, 0, limits.max_outputs)),
      logits_(port("logits", kFloat, num_logits_, limits.max_outputs)),
      next_features_(port("next_features", kFloat, state_size_, limits.max_outputs)),
      session_(head.open_session("step")),
      binding_(ort_.create_binding(session_.get())) {
  cache_.emplace(ort_, binding_.get(), cache_entry(*head.entry().cache), limits.num_blocks, limits.block_size, nullptr);
  bind_input(seq_starts_, 2);
  bind_input(context_lens_, 1);
  bind_input(block_table_, 1);
  const std::array<int32_t, 1> zero{0};
  forward({.ids = zero, .positions = {}, .tree_mask = {}, .block_table = zero, .context = 0, .num_outputs = 1});
}

StepGraph::Port StepGraph::port(const char* name, ONNXTensorElementDataType type, int32_t num_columns,
                                int32_t max_rows) const {
  const size_t num_bytes = element_bytes(type) * std::max(num_columns, 1) * max_rows;
  Port made{.name = name,
            .type = type,
            .num_columns = num_columns,
            .data = Pages(num_bytes, Pages::Size::kSmall),
            .tensors = {}};
  made.tensors.resize(size_t(max_rows) + 1);
  return made;
}

const OrtValue* StepGraph::tensor(Port& port, int32_t num_rows) {
  OrtValuePtr& made = port.tensors[num_rows];
  if (made) return made.get();
  const std::array<int64_t, 2> shape{num_rows, port.num_columns};
  const size_t num_bytes = element_bytes(port.type) * std::max(port.num_columns, 1) * num_rows;
  made = ort_.tensor(port.data.data(), num_bytes, std::span(shape).first(port.num_columns == 0 ? 1 : 2), port.type);
  return made.get();
}

void StepGraph::bind_input(Port& port, int32_t num_rows) {
  ort_.check(ort_abi::BindInput(ort_.api(), binding_.get(), port.name, tensor(port, num_rows)));
}

void StepGraph::bind_output(Port& port, int32_t num_rows) {
  ort_.check(ort_abi::BindOutput(ort_.api(), binding_.get(), port.name, tensor(port, num_rows)));
}

template <typename Element>
std::span<Element> StepGraph::elements(const Port& port) noexcept {
  return {reinterpret_cast<Element*>(port.data.data()), port.data.num_bytes() / sizeof(Element)};
}

std::span<float> StepGraph::features(int32_t row) const noexcept {
  return elements<float>(features_).subspan(size_t(row) * state_size_, state_size_);
}

std::span<const float> StepGraph::next_features(int32_t output) const noexcept {
  return elements<float>(next_features_).subspan(size_t(output) * state_size_, state_size_);
}

Logits StepGraph::forward(const Pass& pass) {
  const auto num_rows = static_cast<int32_t>(pass.ids.size());
  const bool causal = pass.tree_mask.empty();
  assert(num_rows >= 1 && num_rows <= limits_.max_rows && pass.num_outputs <= std::min(num_rows, limits_.max_outputs));
  if (num_rows != bound_rows_ || causal != bound_causal_) {
    bound_rows_ = -1;
    for (Port* rows : {&ids_, &positions_, &features_}) bind_input(*rows, num_rows);
    bind_input(tree_mask_, causal ? 0 : num_rows);
    bound_rows_ = num_rows;
    bound_causal_ = causal;
  }
  if (pass.num_outputs != bound_outputs_) {
    bound_outputs_ = -1;
    bind_input(output_rows_, pass.num_outputs);
    for (Port* rows : {&logits_, &next_features_}) bind_output(*rows, pass.num_outputs);
    bound_outputs_ = pass.num_outputs;
  }
  const std::span<int32_t> positions = elements<int32_t>(positions_);
  const std::span<int32_t> output_rows = elements<int32_t>(output_rows_);
  std::copy(pass.ids.begin(), pass.ids.end(), elements<int32_t>(ids_).begin());
  std::iota(positions.begin(), positions.begin() + num_rows, pass.context);
  std::copy(pass.positions.begin(), pass.positions.end(), positions.begin());
  std::copy(pass.tree_mask.begin(), pass.tree_mask.end(), elements<uint64_t>(tree_mask_).begin());
  std::copy(pass.block_table.begin(), pass.block_table.end(), elements<int32_t>(block_table_).begin());
  std::iota(output_rows.begin(), output_rows.begin() + pass.num_outputs, num_rows - pass.num_outputs);
  elements<int32_t>(seq_starts_)[1] = num_rows;
  elements<int32_t>(context_lens_)[0] = pass.context;
  ort_.check(ort_abi::RunWithBinding(ort_.api(), session_.get(), nullptr, binding_.get()));
  return {elements<float>(logits_).data(), pass.num_outputs, num_logits_};
}

}  // namespace pilotfish
