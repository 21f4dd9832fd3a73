#include "memory/cuda_memory_plan.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>

#include "device/round_kernels.h"
#include "device/weight_stream.h"
#include "memory/weight_streaming.h"

namespace pilotfish {
namespace {

// Of native/cuda: lowbit_format.cuh, lowbit_combine.cuh, prefill_operands.cuh and attention_partials.cuh.
constexpr uint64_t kMostChunkColumns = 128;  // a weight's rows are padded to so many columns, and
constexpr uint64_t kPackedColumns = 64;      // are to these in the bundle
constexpr std::array<uint64_t, 4> kGroupBytes{576, 640, 1088, 2048};  // of 16 rows and as many columns, by format
constexpr uint64_t kF16TileBytes = 32;                                // a column of 16 rows; of integers at most:
constexpr uint64_t kIntegerTileBytes = 17;                            // int8 and its scales
constexpr uint64_t kPartialsOfBlock = 3 * 8 * 32 * sizeof(float);
constexpr uint64_t kTileRows = 16;
constexpr uint64_t kLinearRows = 64;
constexpr uint64_t kPrefillRows = 512;
constexpr uint64_t kSplitKeys = 128;
constexpr uint64_t kHeadPartBytes = (64 + 4) * sizeof(float);  // sums of 64 columns, and their softmax
constexpr uint64_t kSplitRows = 64;
constexpr uint64_t kSquareColumns = 32;
constexpr uint64_t kSquareParts = 16;  // of 512 columns
constexpr uint64_t kLeastCopies = 32;  // rows of an input's f16 copies

constexpr uint64_t kHalf = 2;
constexpr uint64_t kPage = uint64_t{2} << 20;  // what the driver gives at once; smaller tensors share one
constexpr uint64_t kSmall = uint64_t{1} << 20;
constexpr uint64_t kAligned = 512;

uint64_t rounded(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// Of allocations of their own. The last page of the small ones is counted once, for all.
uint64_t allocated(std::initializer_list<uint64_t> sizes) {
  uint64_t sum = 0;
  for (const uint64_t size : sizes) sum += rounded(size, size > kSmall ? kPage : kAligned);
  return sum;
}

// Columns of the widest input of a linear.
uint64_t most_columns(const ModelEntry& model) {
  return std::max(
      {uint64_t(model.hidden_size), uint64_t(model.intermediate_size), uint64_t(model.num_heads) * model.head_dim});
}

// Bytes of a column of 16 rows, at most.
uint64_t tile_column_bytes(const ModelEntry& model) {
  const auto is_f16 = [](const auto& format) { return format.second == "f16"; };
  return std::any_of(model.formats.begin(), model.formats.end(), is_f16) ? kF16TileBytes : kIntegerTileBytes;
}

// Repacking pads to whole pieces of 32 rows and chunks of columns. Whose input has which width is not in the manifest:
// the width that loses most counts.
uint64_t repacked_bytes(const ModelEntry& model, uint64_t num_bytes) {
  uint64_t most = num_bytes;
  bool may_end_in_half_a_piece = false;
  for (const uint64_t columns :
       {uint64_t(model.hidden_size), uint64_t(model.intermediate_size), uint64_t(model.num_heads) * model.head_dim}) {
    const uint64_t groups = rounded(columns, kPackedColumns) / kPackedColumns;
    const uint64_t padded = rounded(columns, kMostChunkColumns) / kPackedColumns;
    most = std::max(most, (num_bytes + groups - 1) / groups * padded);
    // A format in which it has an odd number of tiles of this width.
    for (const uint64_t group_bytes : kGroupBytes) {
      const uint64_t tile_bytes = groups * group_bytes;
      may_end_in_half_a_piece |= num_bytes % tile_bytes == 0 && num_bytes / tile_bytes % 2 == 1;
    }
  }
  if (!may_end_in_half_a_piece) return rounded(most, kAligned);
  const uint64_t tile_bytes = tile_column_bytes(model) * rounded(most_columns(model), kMostChunkColumns);
  return rounded(most + std::min(tile_bytes, most), kAligned);
}

// Activations of a prompt in the order of the tensor cores: f16, sums of 32 columns, a scale a row.
uint64_t prefill_bytes(uint64_t columns, uint64_t rows) {
  if (rows <= kLinearRows) return 0;
  const uint64_t padded = rounded(columns, kMostChunkColumns);
  return std::min(rounded(rows, kLinearRows), kPrefillRows) *
         (kHalf * padded + 2 * sizeof(float) * (padded / kSquareColumns) + sizeof(float));
}

// What a session's operators keep (model_context.cpp): an input in f16 and as a prompt's operands, queries, and in
// turns two f16 copies with sums of squares.
uint64_t scratch_bytes(const ModelEntry& model, const CudaPassSizes& sizes) {
  const uint64_t columns = most_columns(model), rows = sizes.num_rows;
  const uint64_t copy = kHalf * std::max(rows, kLeastCopies) * columns;
  const uint64_t squares = sizeof(float) * rows * rounded(columns, 512) / 512 * kSquareParts;
  const uint64_t queries = kHalf * rows * model.num_heads * model.head_dim;
  return allocated({kHalf * rows * columns, prefill_bytes(columns, rows), queries, copy, copy, squares, squares});
}

uint64_t num_floats(std::span<const TensorEntry> tensors) {
  return std::ranges::count_if(tensors, [](const TensorEntry& each) { return each.type != TensorEntry::Type::kU8; });
}

// Tensors between the nodes, each in a region of ONNX Runtime's arena, which grows by as much as is asked: the residual
// stream before and after, attention's input and output, the gated middle of the MLP. More than two norms and a bias a
// layer may be of other nodes, whose tensors the manifest does not tell: twice as much.
uint64_t arena_bytes(const ModelEntry& model, const CudaPassSizes& sizes) {
  const uint64_t column = sizeof(float) * uint64_t(sizes.num_rows), hidden = column * model.hidden_size;
  const uint64_t heads = column * model.num_heads * model.head_dim;
  const uint64_t keys = column * model.num_kv_heads * model.head_dim;
  const uint64_t tensors =
      allocated({hidden, hidden, heads + 2 * keys, heads, column * uint64_t(model.intermediate_size)});
  constexpr uint64_t kAtTheEnds = 4;
  const bool is_plain = num_floats(model.tensors) <= 3 * uint64_t(model.num_layers) + kAtTheEnds;
  return is_plain ? tensors : 2 * tensors;
}

uint64_t buffer_bytes(const ModelEntry& model, const CudaPassSizes& sizes) {
  const uint64_t table = sizeof(int32_t) * uint64_t(sizes.max_context) * sizes.max_seqs;
  const uint64_t inputs = table + sizes.num_rows * uint64_t{24};
  return allocated({inputs, sizeof(float) * uint64_t(sizes.num_outputs) * model.num_logits});
}

// A linear is a kernel, attention one or two, a norm beyond a layer's two may be one; embeddings, gathered rows, copies
// and choices come to them.
uint64_t recorded_bytes(std::span<const TensorEntry> tensors, uint64_t num_layers) {
  constexpr uint64_t kOthers = 8;
  const uint64_t floats = num_floats(tensors), packed = tensors.size() - floats, usual = 2 * num_layers;
  const uint64_t num_kernels = packed + num_layers + (floats > usual ? floats - usual : 0) + kOthers;
  return kRecordedKernelBytes * num_kernels;
}

uint64_t pass_bytes(const ModelEntry& model, const CudaPassSizes& sizes, uint64_t recorded_pass) {
  return scratch_bytes(model, sizes) + arena_bytes(model, sizes) + buffer_bytes(model, sizes) +
         kMostRecordedShapes * recorded_pass;
}

// Sums between thread blocks, which the models of an engine share.
uint64_t partial_bytes(const ModelEntry& model, const CudaPassSizes& sizes) {
  const uint64_t split_rows = std::min<uint64_t>(sizes.num_rows, kSplitRows);
  const uint64_t splits = rounded(sizes.max_context, kSplitKeys) / kSplitKeys;
  const uint64_t head_parts = model.head_dim <= 64 ? 1 : model.head_dim <= 128 ? 2 : model.head_dim <= 256 ? 4 : 8;
  const uint64_t attention = split_rows * splits * model.num_heads * head_parts * kHeadPartBytes;
  uint64_t linear_rows = 8;
  while (linear_rows < std::min<uint64_t>(sizes.num_rows, kLinearRows)) linear_rows *= 2;
  return allocated({attention, sizes.num_sms * kPartialsOfBlock * linear_rows});
}

// Recorded rounds of up to so many drafted tokens, and what their kernels share (device_round.h).
uint64_t round_bytes(const Manifest& manifest, int32_t max_draft_tokens, const CudaPassSizes& sizes,
                     const RecordedPassBytes& recorded) {
  const int32_t max_logits = manifest.target.num_logits;
  const uint64_t parts = uint64_t{kMaxRoundRows} * num_row_parts(max_logits) * sizeof(RowPart);
  const uint64_t tables = 2 * sizeof(int32_t) * uint64_t(max_logits);  // of a draft that scores few tokens
  const uint64_t likely = uint64_t{kMaxRoundRows} * (1 + num_row_parts(max_logits)) * sizeof(LikelyRow);
  return most_recorded_bytes(recorded, max_draft_tokens) + most_shared_bytes(recorded, sizes.max_seqs) + parts +
         tables + likely + kSmall;
}

uint64_t float_bytes(std::span<const TensorEntry> tensors) {
  uint64_t sum = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.type == TensorEntry::Type::kU8) continue;
    const uint64_t copies = tensor.shape.size() == 1 ? 2 : 1;  // a norm's weight, and scaled for f16
    sum += copies * rounded(tensor.num_bytes, tensor.num_bytes > kSmall ? kPage : kAligned);
  }
  return sum;
}

// The sessions of a head, whose passes have kSplitRows rows at most, or those of Medusa's heads of all who share one.
// Its middle is taken to be no wider than twice the target's.
uint64_t head_bytes(const Manifest& manifest, const CudaPassSizes& sizes, uint64_t recorded_pass) {
  const HeadEntry& head = *manifest.head;
  const ModelEntry& target = manifest.target;
  ModelEntry widest = target;
  widest.hidden_size = std::max<int32_t>(2 * head.state_size, head.taps.size() * target.hidden_size);
  widest.intermediate_size = 2 * target.intermediate_size;
  const bool is_medusa = head.kind.graphs == HeadGraphs::kHeads;
  const int32_t num_medusa_rows = is_medusa ? head.num_predictions * sizes.max_seqs : 0;
  const CudaPassSizes few{.num_rows = std::max<int32_t>(kSplitRows, num_medusa_rows),
                          .num_outputs = 0,
                          .max_context = sizes.max_context,
                          .num_sms = 0};
  const uint64_t session = scratch_bytes(widest, few) + arena_bytes(widest, few) + kMostRecordedShapes * recorded_pass;
  const uint64_t likely = kMaxRoundRows * (1 + num_row_parts(head.num_logits)) * sizeof(LikelyRow);
  return head.graphs.size() * session + likely;
}

}  // namespace

uint64_t cuda_repacked_bytes(const ModelEntry& model, const TensorEntry& tensor) {
  return repacked_bytes(model, tensor.num_bytes);
}

uint64_t cuda_repacked_bytes(const ModelEntry& model) {
  uint64_t sum = 0;
  for (const TensorEntry& tensor : model.tensors) {
    if (tensor.type == TensorEntry::Type::kU8) sum += cuda_repacked_bytes(model, tensor);
  }
  return sum;
}

// The manifest does not say which widths a head's weights have: none is taken to be smaller than its state.
uint64_t cuda_repacked_bytes(const HeadEntry& head) {
  const uint64_t groups = rounded(head.state_size, kPackedColumns) / kPackedColumns;
  const uint64_t tiles = rounded(head.state_size, kTileRows) / kTileRows;
  uint64_t sum = 0;
  for (const TensorEntry& tensor : head.tensors) {
    if (tensor.type != TensorEntry::Type::kU8) continue;
    const uint64_t wider = tensor.num_bytes + tensor.num_bytes / groups;
    sum += rounded(wider + wider / tiles, kAligned);
  }
  return sum;
}

uint64_t cuda_weight_bytes(const ModelEntry& model, uint64_t streamed_bytes) {
  return rounded(cuda_repacked_bytes(model) - streamed_bytes, kPage) + float_bytes(model.tensors);
}

uint64_t cuda_slot_bytes(uint64_t largest_bytes) {
  return rounded(WeightStream::kNumSlots * largest_bytes + kStreamMarkerBytes, kPage);
}

uint64_t cuda_weight_bytes(const HeadEntry& head) {
  return rounded(cuda_repacked_bytes(head), kPage) + float_bytes(head.tensors);
}

uint64_t cuda_rounding_bytes(uint64_t num_bytes) { return allocated({num_bytes}) - num_bytes; }

uint64_t cuda_runtime_bytes(const Manifest& manifest) {
  const uint64_t num_sessions = 1 + (manifest.draft ? 1 : 0) + (manifest.head ? manifest.head->graphs.size() : 0);
  return kCudaContextBytes + num_sessions * kCudaSessionBytes;
}

RecordedPassBytes recorded_pass_bytes(const Manifest& manifest, bool streams) {
  const ModelEntry& target = manifest.target;
  const uint64_t num_streamed = streams ? streamable(target, StreamedFrom::kHost).size() : 0;
  return {.target = recorded_bytes(target.tensors, target.num_layers) + num_streamed * kStreamedNodeBytes,
          .draft = manifest.draft ? recorded_bytes(manifest.draft->tensors, manifest.draft->num_layers) : 0,
          .head = manifest.head ? recorded_bytes(manifest.head->tensors, 1) : 0};
}

uint64_t cuda_activation_bytes(const Manifest& manifest, const CudaPassSizes& sizes, int32_t max_draft_tokens) {
  const ModelEntry& target = manifest.target;
  const RecordedPassBytes recorded = recorded_pass_bytes(manifest, sizes.streams);
  uint64_t sum = pass_bytes(target, sizes, recorded.target), partials = partial_bytes(target, sizes);
  if (manifest.draft) {
    sum += pass_bytes(*manifest.draft, sizes, recorded.draft);
    partials = std::max(partials, partial_bytes(*manifest.draft, sizes));
  }
  if (manifest.head) sum += head_bytes(manifest, sizes, recorded.head);
  // The small allocations end within a page, and so do the streams that the target gives a head.
  const uint64_t num_ends = manifest.head ? 2 : 1;
  return sum + partials + round_bytes(manifest, max_draft_tokens, sizes, recorded) + num_ends * kPage;
}

}  // namespace pilotfish
