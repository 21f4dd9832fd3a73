#include "model/model.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <numeric>
#include <string>
#include <utility>

#include "bundle/bundle_files.h"
#include "memory/cuda_memory_plan.h"
#include "memory/kv_blocks.h"
#include "status.h"

namespace pilotfish {
namespace {

constexpr int32_t kMostRecordedRows = 64;  // longer passes are worth more than their launches

}  // namespace

Model::Model(std::shared_ptr<const Ort> ort, std::shared_ptr<CudaDevice> device, const std::filesystem::path& folder,
             const ModelEntry& entry, const ModelLimits& limits)
    : ort_(std::move(ort)),
      device_(std::move(device)),
      limits_(limits),
      num_logits_(entry.num_logits),
      logit_ids_(entry.logit_ids),
      max_positions_(entry.max_positions),
      weights_(read_weights(folder, entry.weights)),
      buffers_({.max_rows = limits.max_rows,
                .max_blocks = num_blocks_for(limits.max_context, limits.block_size),
                .max_outputs = limits.max_outputs,
                .num_logits = entry.num_logits},
               device_),
      row_tensors_(limits.max_rows + 1),
      output_tensors_(limits.max_outputs + 1),
      later_logits_(limits.max_outputs) {
  check_file(folder, entry.graph);
  load_session(folder, entry);
  binding_ = ort_->create_binding(session_.get());
  cache_.emplace(*ort_, binding_.get(), entry, limits.num_blocks, limits.block_size, device_);
  bind_fixed_inputs();
  if (limits.max_hidden > 0) hidden_.emplace(*ort_, binding_.get(), entry.taps, entry.hidden_size, limits.max_hidden);
  // A graph that is not what the manifest says fails here rather than in the first request; so does a device without
  // room for the widest pass, whose memory ONNX Runtime takes when it first runs one.
  try_pass(device_ ? std::min({limits.max_rows, limits.max_context, max_positions_}) : 1);
}

void Model::try_pass(int32_t num_rows) {
  const std::vector<int32_t> ids(num_rows);
  std::vector<int32_t> blocks(num_blocks_for(num_rows, limits_.block_size));
  std::iota(blocks.begin(), blocks.end(), 0);
  forward({.ids = ids,
           .positions = {},
           .tree_mask = {},
           .block_table = blocks,
           .context = 0,
           .num_outputs = std::min(num_rows, limits_.max_outputs)});
}

void Model::load_session(const std::filesystem::path& folder, const ModelEntry& entry) {
  OrtSessionOptionsPtr options;
  if (device_) {
    operators_ =
        device_->create_operators(ort_->api(), {.max_rows = limits_.max_rows,
                                                .max_blocks = num_blocks_for(limits_.max_context, limits_.block_size),
                                                .block_size = limits_.block_size,
                                                .weight_bytes = cuda_repacked_bytes(entry)});
    options = ort_->cuda_session_options(device_->index(), device_->stream(), operators_->domain());
    run_options_ = ort_->unsynchronised_run();
  } else {
    options = ort_->session_options(limits_.num_threads);
  }
  for (const TensorEntry& tensor : entry.tensors) {
    const OrtValuePtr& value = initializers_.emplace(tensor.name, initializer(tensor)).first->second;
    ort_->check(ort_abi::AddInitializer(ort_->api(), options.get(), tensor.name.c_str(), value.get()));
  }
  session_ = ort_->create_session((folder / entry.graph.file).string(), options.get());
  if (!device_) return;
  ort_->check_cuda_placement(session_.get(), entry.graph.file);
  device_->synchronize();
  operators_->end_load();
  weights_.reset();
}

// On a device, packed weights stay in host memory for the operators to repack; everything else is copied.
OrtValuePtr Model::initializer(const TensorEntry& entry) {
  std::byte* const data = weights_->data() + entry.offset;
  if (entry.type == TensorEntry::Type::kU8) {
    return ort_->tensor(data, entry.num_bytes, entry.shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8);
  }
  if (!device_) return ort_->tensor(data, entry.num_bytes, entry.shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
  std::byte* const copy = device_tensors_.emplace_back(device_, entry.num_bytes).data();
  device_->upload(copy, data, entry.num_bytes);
  return ort_->cuda_tensor(device_->index(), copy, entry.num_bytes, entry.shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
}

OrtValuePtr Model::tensor(void* data, size_t num_bytes, std::span<const int64_t> shape,
                          ONNXTensorElementDataType type) {
  return device_ ? ort_->cuda_tensor(device_->index(), data, num_bytes, shape, type)
                 : ort_->tensor(data, num_bytes, shape, type);
}

OrtValuePtr Model::ints(std::span<int32_t> data, std::span<const int64_t> shape) {
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return tensor(buffers_.bound(data.data()), sizeof(int32_t) * count, shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32);
}

void Model::bind_input(const char* name, const OrtValue* value) {
  ort_->check(ort_abi::BindInput(ort_->api(), binding_.get(), name, value));
}

void Model::bind_fixed_inputs() {
  const std::array<int64_t, 1> starts{2};
  const std::array<int64_t, 1> one{1};
  const std::array<int64_t, 2> table{1, static_cast<int64_t>(buffers_.block_table.size())};
  fixed_inputs_.push_back(ints(buffers_.seq_starts, starts));
  bind_input("seq_starts", fixed_inputs_.back().get());
  fixed_inputs_.push_back(ints(buffers_.context_lens, one));
  bind_input("context_lens", fixed_inputs_.back().get());
  fixed_inputs_.push_back(ints(buffers_.block_table, table));
  bind_input("block_table", fixed_inputs_.back().get());
}

void Model::bind_rows(int32_t num_rows, bool causal) {
  if (num_rows == bound_rows_ && causal == bound_causal_) return;
  RowTensors& tensors = row_tensors_[num_rows];
  const std::array<int64_t, 1> rows{num_rows};
  if (!tensors.ids) {
    tensors.ids = ints(buffers_.input_ids, rows);
    tensors.positions = ints(buffers_.position_ids, rows);
    tensors.tree_mask = tensor(buffers_.bound(buffers_.tree_mask.data()), sizeof(uint64_t) * num_rows, rows,
                               ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64);
  }
  if (!row_tensors_[0].tree_mask) {
    const std::array<int64_t, 1> none{0};
    row_tensors_[0].tree_mask =
        tensor(buffers_.bound(buffers_.tree_mask.data()), 0, none, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64);
  }
  bound_rows_ = -1;
  bind_input("input_ids", tensors.ids.get());
  bind_input("position_ids", tensors.positions.get());
  bind_input("tree_mask", (causal ? row_tensors_[0] : tensors).tree_mask.get());
  bound_causal_ = causal;
  bound_rows_ = num_rows;
}

void Model::bind_outputs(int32_t num_outputs, int32_t first_output) {
  if (num_outputs == bound_outputs_ && first_output == bound_first_output_) return;
  OutputTensors& tensors = output_tensors_[num_outputs];
  const std::array<int64_t, 2> shape{num_outputs, num_logits_};
  const auto logits = [&] {
    const size_t row_bytes = sizeof(float) * num_logits_;
    return tensor(static_cast<std::byte*>(buffers_.bound_logits()) + first_output * row_bytes, num_outputs * row_bytes,
                  shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
  };
  if (!tensors.rows) {
    const std::array<int64_t, 1> rows{num_outputs};
    tensors.rows = ints(buffers_.output_rows, rows);
  }
  assert(first_output == 0 || num_outputs == 1);
  OrtValuePtr& bound = first_output == 0 ? tensors.logits : later_logits_[first_output];
  if (!bound) bound = logits();
  bound_outputs_ = -1;
  bind_input("output_rows", tensors.rows.get());
  ort_->check(ort_abi::BindOutput(ort_->api(), binding_.get(), "logits", bound.get()));
  bound_outputs_ = num_outputs;
  bound_first_output_ = first_output;
}

void Model::run_session() {
  ort_->check(ort_abi::RunWithBinding(ort_->api(), session_.get(), run_options_.get(), binding_.get()));
}

void Model::run(int32_t num_rows, bool causal, int32_t num_outputs) {
  const auto enqueue = [this] { run_session(); };
  if (!device_ || num_rows > kMostRecordedRows) return enqueue();
  for (RecordedPass& pass : recorded_) {
    if (pass.num_rows == num_rows && pass.causal == causal && pass.num_outputs == num_outputs) {
      if (!pass.graph) pass.graph = device_->record(enqueue);
      return pass.graph->launch();
    }
  }
  // The first time runs as it is: ONNX Runtime's memory for this shape must exist before a recording.
  recorded_.push_back({num_rows, num_outputs, causal, nullptr});
  enqueue();
}

void Model::set_inputs(const Pass& pass) {
  const auto num_rows = static_cast<int32_t>(pass.ids.size());
  assert(num_rows >= 1 && num_rows <= limits_.max_rows && pass.num_outputs <= limits_.max_outputs);
  assert(pass.num_outputs <= num_rows && pass.block_table.size() <= buffers_.block_table.size());
  std::copy(pass.ids.begin(), pass.ids.end(), buffers_.input_ids.begin());
  std::iota(buffers_.position_ids.begin(), buffers_.position_ids.begin() + num_rows, pass.context);
  std::copy(pass.positions.begin(), pass.positions.end(), buffers_.position_ids.begin());
  std::copy(pass.tree_mask.begin(), pass.tree_mask.end(), buffers_.tree_mask.begin());
  std::copy(pass.block_table.begin(), pass.block_table.end(), buffers_.block_table.begin());
  std::iota(buffers_.output_rows.begin(), buffers_.output_rows.begin() + pass.num_outputs, num_rows - pass.num_outputs);
  buffers_.seq_starts[1] = num_rows;
  buffers_.context_lens[0] = pass.context;
}

PassInputs Model::device_inputs() const noexcept {
  const auto ints = [this](std::span<int32_t> data) { return static_cast<int32_t*>(buffers_.bound(data.data())); };
  return {.input_ids = ints(buffers_.input_ids),
          .position_ids = ints(buffers_.position_ids),
          .seq_starts = ints(buffers_.seq_starts),
          .context_lens = ints(buffers_.context_lens),
          .output_rows = ints(buffers_.output_rows),
          .tree_mask = static_cast<uint64_t*>(buffers_.bound(buffers_.tree_mask.data()))};
}

void Model::enqueue(int32_t num_rows, int32_t num_outputs, int32_t first_output, Sees sees) {
  bind_rows(num_rows, sees == Sees::kCausal);
  bind_outputs(num_outputs, first_output);
  if (hidden_) hidden_->ask(num_rows, 0);
  run_session();
}

void Model::start(const Pass& pass) {
  const auto num_rows = static_cast<int32_t>(pass.ids.size());
  assert(pass.num_hidden <= std::min(num_rows, limits_.max_hidden));
  bind_rows(num_rows, pass.tree_mask.empty());
  bind_outputs(pass.num_outputs);
  if (hidden_) hidden_->ask(num_rows, pass.num_hidden);
  set_inputs(pass);
  buffers_.upload();
  run(num_rows, pass.tree_mask.empty(), pass.num_outputs);
}

void Model::forward_on_device(const Pass& pass, int32_t num_times) {
  for (int32_t i = 0; i < num_times; ++i) start(pass);
  device_->synchronize();
}

Logits Model::forward(const Pass& pass) {
  start(pass);
  buffers_.download(sizeof(float) * pass.num_outputs * num_logits_);
  if (device_) device_->synchronize();
  return {buffers_.logits, pass.num_outputs, num_logits_};
}

}  // namespace pilotfish
