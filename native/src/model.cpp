#include "model.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <numeric>
#include <string>
#include <utility>

#include "bundle_files.h"
#include "kv_blocks.h"
#include "status.h"

namespace pilotfish {

Model::Model(std::shared_ptr<const Ort> ort, const std::filesystem::path& folder, const ModelEntry& entry,
             const ModelLimits& limits)
    : ort_(std::move(ort)),
      limits_(limits),
      num_logits_(entry.num_logits),
      max_positions_(entry.max_positions),
      weights_(read_weights(folder, entry.weights)),
      input_ids_(limits.max_rows),
      position_ids_(limits.max_rows),
      seq_starts_(2),
      context_lens_(1),
      block_table_(num_blocks_for(limits.max_context, limits.block_size)),
      output_rows_(limits.max_outputs),
      tree_mask_(limits.max_rows),
      logits_(sizeof(float) * limits.max_outputs * entry.num_logits, Pages::Size::kSmall),
      row_tensors_(limits.max_rows + 1),
      output_tensors_(limits.max_outputs + 1) {
  check_file(folder, entry.graph);
  load_session(folder, entry);
  binding_ = ort_->create_binding(session_.get());
  cache_.emplace(*ort_, binding_.get(), entry, limits.num_blocks, limits.block_size);
  bind_fixed_inputs();
  // A graph that is not what the manifest says fails here rather than in the first request.
  const std::array<int32_t, 1> zero{0};
  forward({.ids = zero, .positions = {}, .tree_mask = {}, .block_table = zero, .context = 0, .num_outputs = 1});
}

void Model::load_session(const std::filesystem::path& folder, const ModelEntry& entry) {
  const OrtSessionOptionsPtr options = ort_->session_options(limits_.num_threads);
  for (const TensorEntry& tensor : entry.tensors) {
    const auto type = tensor.type == TensorEntry::Type::kU8 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8
                                                            : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    initializers_.push_back(ort_->tensor(weights_.data() + tensor.offset, tensor.num_bytes, tensor.shape, type));
    ort_->check(ort_abi::AddInitializer(ort_->api(), options.get(), tensor.name.c_str(), initializers_.back().get()));
  }
  session_ = ort_->create_session((folder / entry.graph.file).string(), options.get());
}

OrtValuePtr Model::ints(std::vector<int32_t>& data, std::span<const int64_t> shape) {
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return ort_->tensor(data.data(), sizeof(int32_t) * count, shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32);
}

void Model::bind_input(const char* name, const OrtValue* value) {
  ort_->check(ort_abi::BindInput(ort_->api(), binding_.get(), name, value));
}

void Model::bind_fixed_inputs() {
  const std::array<int64_t, 1> starts{2};
  const std::array<int64_t, 1> one{1};
  const std::array<int64_t, 2> table{1, static_cast<int64_t>(block_table_.size())};
  fixed_inputs_.push_back(ints(seq_starts_, starts));
  bind_input("seq_starts", fixed_inputs_.back().get());
  fixed_inputs_.push_back(ints(context_lens_, one));
  bind_input("context_lens", fixed_inputs_.back().get());
  fixed_inputs_.push_back(ints(block_table_, table));
  bind_input("block_table", fixed_inputs_.back().get());
}

void Model::bind_rows(int32_t num_rows, bool causal) {
  if (num_rows == bound_rows_ && causal == bound_causal_) return;
  RowTensors& tensors = row_tensors_[num_rows];
  const std::array<int64_t, 1> rows{num_rows};
  if (!tensors.ids) {
    tensors.ids = ints(input_ids_, rows);
    tensors.positions = ints(position_ids_, rows);
    tensors.tree_mask =
        ort_->tensor(tree_mask_.data(), sizeof(uint64_t) * num_rows, rows, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64);
  }
  if (!row_tensors_[0].tree_mask) {
    const std::array<int64_t, 1> none{0};
    row_tensors_[0].tree_mask = ort_->tensor(tree_mask_.data(), 0, none, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64);
  }
  bound_rows_ = -1;
  bind_input("input_ids", tensors.ids.get());
  bind_input("position_ids", tensors.positions.get());
  bind_input("tree_mask", (causal ? row_tensors_[0] : tensors).tree_mask.get());
  bound_causal_ = causal;
  bound_rows_ = num_rows;
}

void Model::bind_outputs(int32_t num_outputs) {
  if (num_outputs == bound_outputs_) return;
  OutputTensors& tensors = output_tensors_[num_outputs];
  if (!tensors.rows) {
    const std::array<int64_t, 1> rows{num_outputs};
    const std::array<int64_t, 2> logits{num_outputs, num_logits_};
    tensors.rows = ints(output_rows_, rows);
    tensors.logits = ort_->tensor(logits_.data(), sizeof(float) * num_outputs * num_logits_, logits,
                                  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
  }
  bound_outputs_ = -1;
  bind_input("output_rows", tensors.rows.get());
  ort_->check(ort_abi::BindOutput(ort_->api(), binding_.get(), "logits", tensors.logits.get()));
  bound_outputs_ = num_outputs;
}

Logits Model::forward(const Pass& pass) {
  const auto num_rows = static_cast<int32_t>(pass.ids.size());
  assert(num_rows >= 1 && num_rows <= limits_.max_rows && pass.num_outputs <= limits_.max_outputs);
  assert(pass.num_outputs <= num_rows && pass.block_table.size() <= block_table_.size());
  bind_rows(num_rows, pass.tree_mask.empty());
  bind_outputs(pass.num_outputs);
  std::copy(pass.ids.begin(), pass.ids.end(), input_ids_.begin());
  std::iota(position_ids_.begin(), position_ids_.begin() + num_rows, pass.context);
  std::copy(pass.positions.begin(), pass.positions.end(), position_ids_.begin());
  std::copy(pass.tree_mask.begin(), pass.tree_mask.end(), tree_mask_.begin());
  std::copy(pass.block_table.begin(), pass.block_table.end(), block_table_.begin());
  std::iota(output_rows_.begin(), output_rows_.begin() + pass.num_outputs, num_rows - pass.num_outputs);
  seq_starts_[1] = num_rows;
  context_lens_[0] = pass.context;
  ort_->check(ort_abi::RunWithBinding(ort_->api(), session_.get(), nullptr, binding_.get()));
  return {reinterpret_cast<const float*>(logits_.data()), pass.num_outputs, num_logits_};
}

}  // namespace pilotfish
