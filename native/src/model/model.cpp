#include "model/model.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <numeric>
#include <utility>

#include "bundle/graph_check.h"
#include "device/chain_lengths.h"
#include "memory/cuda_memory_plan.h"
#include "memory/kv_blocks.h"
#include "memory/weight_streaming.h"
#include "model/head.h"

namespace pilotfish {
namespace {

constexpr auto kInt32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
constexpr auto kUint64 = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64;
constexpr auto kFloat32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;

int32_t most_blocks(const ModelLimits& limits) { return num_blocks_for(limits.max_context, limits.block_size); }

// What a device is told of the rows of several sequences: in steps, so that few kinds of passes are recorded.
int32_t bound_of_rows(std::span<const PassSequence> sequences) {
  int32_t longest = 0;
  for (const PassSequence& sequence : sequences) longest = std::max(longest, sequence.num_rows);
  const auto* const bound = std::ranges::lower_bound(kSequenceRows, longest);
  return sequences.size() < 2 || bound == kSequenceRows.end() ? 0 : *bound;
}

}  // namespace

CudaPassLimits cuda_limits(const ModelLimits& limits) noexcept {
  return {.max_rows = limits.max_rows, .max_blocks = most_blocks(limits), .block_size = limits.block_size};
}

Model::Loaded Model::load(std::shared_ptr<const Ort> ort, std::shared_ptr<CudaDevice> device,
                          const BundleSource& source, const ModelEntry& entry, std::unique_ptr<WeightsFile> file,
                          const ModelLimits& limits) {
  Weights::Content content{
      .file = std::move(file), .tensors = entry.tensors, .repacked_bytes = cuda_repacked_bytes(entry), .streamed = {}};
  if (device && limits.most_weight_bytes > 0) {
    content.streamed = choose_streamed(entry, limits.most_weight_bytes, StreamedFrom::kHost);
    content.repacked_bytes -= content.streamed.streamed_bytes;
  }
  auto weights = std::make_unique<Weights>(*ort, device, std::move(content), nullptr);
  const PlacedGraph placed = read_graph(source, entry.graph, weights_of(entry));
  Session::Graph graph{.file = source.folder / entry.graph.file,
                       .placed = placed,
                       .initializers = {},
                       .num_threads = limits.num_threads,
                       .limits = cuda_limits(limits),
                       .repacked = weights->repacked()};
  for (const auto& [name, value] : weights->tensors()) graph.initializers.push_back({name, value.get()});
  auto session = std::make_unique<Session>(std::move(ort), std::move(device), graph);
  return {std::move(weights), std::move(session)};
}

Model::Model(const ModelEntry& entry, const ModelLimits& limits, Loaded loaded)
    : limits_(limits),
      num_logits_(entry.num_logits),
      logit_ids_(entry.logit_ids),
      max_positions_(entry.max_positions),
      weights_(std::move(loaded.weights)),
      session_(std::move(loaded.session)),
      buffers_({.max_rows = limits.max_rows,
                .max_seqs = limits.max_seqs,
                .max_blocks = most_blocks(limits),
                .max_outputs = limits.max_outputs,
                .max_hidden = limits.max_hidden,
                .num_logits = entry.num_logits},
               session_->device()),
      ids_(input("input_ids", kInt32, buffers_.input_ids.data(), limits.max_rows)),
      positions_(input("position_ids", kInt32, buffers_.position_ids.data(), limits.max_rows)),
      seq_starts_(input("seq_starts", kInt32, buffers_.seq_starts.data(), limits.max_seqs + 1)),
      context_lens_(input("context_lens", kInt32, buffers_.context_lens.data(), limits.max_seqs)),
      block_table_(input("block_table", kInt32, buffers_.block_table.data(), limits.max_seqs, most_blocks(limits))),
      tree_mask_(input("tree_mask", kUint64, buffers_.tree_mask.data(), limits.max_rows)),
      output_rows_(input("output_rows", kInt32, buffers_.output_rows.data(), limits.max_outputs)),
      logits_(*session_, "logits", RowPort::Kind::kOutput,
              {kFloat32, buffers_.bound_logits(), num_logits_, limits.max_outputs}) {
  cache_.emplace(*session_, entry, limits.num_blocks, limits.block_size);
  if (limits.max_hidden > 0) {
    hidden_.emplace(*session_, entry.taps, entry.hidden_size, limits.max_hidden,
                    buffers_.bound(buffers_.hidden_rows.data()));
  }
}

Model::Model(std::shared_ptr<const Ort> ort, std::shared_ptr<CudaDevice> device, const BundleSource& source,
             const ModelEntry& entry, std::unique_ptr<WeightsFile> weights, const ModelLimits& limits)
    : Model(entry, limits, load(std::move(ort), std::move(device), source, entry, std::move(weights), limits)) {}

void Model::finish_load() {
  weights_->wait();
  try_pass();
}

Model::Model(const Head& head, const ModelLimits& limits)
    : Model(step_entry(head.entry()), limits, {nullptr, head.open_session("step", cuda_limits(limits))}) {
  FloatRows in(session_->device(), limits.max_rows, head.entry().state_size);
  FloatRows out(session_->device(), limits.max_outputs, head.entry().state_size);
  RowPort in_port(*session_, "features", RowPort::Kind::kInput, RowPort::Rows::of(in));
  RowPort out_port(*session_, "next_features", RowPort::Kind::kOutput, RowPort::Rows::of(out));
  features_.emplace(std::move(in), std::move(out), std::move(in_port), std::move(out_port));
  try_pass();
}

// A graph that is not what the manifest says fails here rather than in the first request; so does a device without room
// for the widest pass, whose memory ONNX Runtime takes when it first runs one.
void Model::try_pass() {
  const int32_t most = std::min({limits_.max_rows, limits_.max_context, max_positions_});
  const int32_t num_rows = session_->device() ? most : 1;
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

RowPort Model::input(const char* name, ONNXTensorElementDataType type, const void* host, int32_t max_rows,
                     int32_t num_columns) {
  // A table of blocks is as wide as the context asks.
  return {*session_, name, RowPort::Kind::kInput, {type, buffers_.bound(host), num_columns, max_rows, num_columns > 0}};
}

void Model::bind(const PassShape& shape, int32_t first_output) {
  session_->bound_sequence_rows(shape.sequence_rows);
  ids_.bind(shape.num_rows);
  positions_.bind(shape.num_rows);
  seq_starts_.bind(shape.num_seqs + 1);
  context_lens_.bind(shape.num_seqs);
  block_table_.bind(shape.num_seqs);
  tree_mask_.bind(shape.is_causal ? 0 : shape.num_rows);
  output_rows_.bind(shape.num_outputs);
  logits_.bind(shape.num_outputs, first_output);
  if (hidden_) hidden_->bind(shape.num_hidden);
  if (features_) {
    features_->in_port.bind(shape.num_rows);
    features_->out_port.bind(shape.num_outputs);
  }
}

void Model::carry_on(int32_t num_rows) {
  if (features_) features_->in.take(0, features_->out, 0, num_rows);
}

void Model::carry_on(const int32_t* device_rows, int32_t num_rows) {
  if (features_) features_->in.take(features_->out, device_rows, num_rows);
}

void Model::set_inputs(const Pass& pass) {
  const auto num_rows = static_cast<int32_t>(pass.ids.size());
  assert(num_rows >= 1 && num_rows <= limits_.max_rows && pass.num_outputs <= limits_.max_outputs);
  assert(pass.num_outputs <= num_rows &&
         (pass.output_rows.empty() || int32_t(pass.output_rows.size()) == pass.num_outputs));
  assert(pass.num_hidden <= std::min(num_rows, limits_.max_hidden));
  std::copy(pass.ids.begin(), pass.ids.end(), buffers_.input_ids.begin());
  std::iota(buffers_.position_ids.begin(), buffers_.position_ids.begin() + num_rows, pass.context);
  std::copy(pass.positions.begin(), pass.positions.end(), buffers_.position_ids.begin());
  std::copy(pass.tree_mask.begin(), pass.tree_mask.end(), buffers_.tree_mask.begin());
  const auto last_rows = [num_rows](std::span<int32_t> rows, int32_t count) {
    std::iota(rows.begin(), rows.begin() + count, num_rows - count);
  };
  last_rows(buffers_.output_rows, pass.num_outputs);
  std::copy(pass.output_rows.begin(), pass.output_rows.end(), buffers_.output_rows.begin());
  last_rows(buffers_.hidden_rows, pass.num_hidden);
  if (pass.sequences.empty()) return set_sequence(0, {num_rows, pass.block_table, pass.context});
  assert(int32_t(pass.sequences.size()) <= limits_.max_seqs && pass.positions.size() == pass.ids.size());
  for (size_t i = 0; i < pass.sequences.size(); ++i) set_sequence(static_cast<int32_t>(i), pass.sequences[i]);
}

void Model::set_sequence(int32_t index, const PassSequence& sequence) {
  const size_t width = size_t(most_blocks(limits_));
  assert(sequence.block_table.size() <= width);
  std::copy(sequence.block_table.begin(), sequence.block_table.end(), buffers_.block_table.begin() + index * width);
  buffers_.seq_starts[index + 1] = buffers_.seq_starts[index] + sequence.num_rows;
  buffers_.context_lens[index] = sequence.context;
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

void Model::enqueue(const PassShape& shape, int32_t first_output) {
  bind(shape, first_output);
  session_->run();
}

void Model::start(const Pass& pass) {
  const PassShape shape{.num_rows = static_cast<int32_t>(pass.ids.size()),
                        .num_outputs = pass.num_outputs,
                        .num_hidden = pass.num_hidden,
                        .is_causal = pass.tree_mask.empty(),
                        .num_seqs = std::max<int32_t>(1, pass.sequences.size()),
                        .sequence_rows = bound_of_rows(pass.sequences)};
  bind(shape);
  set_inputs(pass);
  buffers_.upload();
  session_->run(shape);
}

void Model::forward_on_device(const Pass& pass, int32_t num_times) {
  for (int32_t i = 0; i < num_times; ++i) start(pass);
  session_->device()->synchronize();
}

Logits Model::forward(const Pass& pass, const std::function<void()>& meanwhile) {
  start(pass);
  const Logits logits = download(0, pass.num_outputs);
  if (meanwhile) meanwhile();
  if (session_->device()) session_->device()->synchronize();
  return logits;
}

Logits Model::download(int32_t first_output, int32_t num_outputs) {
  const size_t first = size_t(first_output) * num_logits_;
  buffers_.download(sizeof(float) * first, sizeof(float) * num_outputs * num_logits_);
  return {buffers_.logits + first, num_outputs, num_logits_};
}

}  // namespace pilotfish
