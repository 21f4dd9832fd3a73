// The operator PagedAttention of GRAPH.md on a CUDA device. Shapes are checked; the values of positions, tables and
// masks lie on the device and are the caller's word.
#include <memory>
#include <string>

#include "attention_limits.h"
#include "checked.h"
#include "cuda_operator.h"
#include "cuda_operators.h"
#include "paged_attention_inputs.h"

namespace pilotfish::cuda {
namespace {

using namespace pilotfish::attention_input;

int integer(const NodeInfo& node, const char* name, int64_t least, int64_t most) {
  return static_cast<int>(node.integer(name, least, most));
}

class PagedAttentionOp {
 public:
  static constexpr const char* kName = "PagedAttention";
  static constexpr std::array kInputs = attention_input::all(ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED);

  PagedAttentionOp(ModelContext& context, const NodeInfo& node);
  void enqueue(const NodeIo& io, cudaStream_t stream) const;

 private:
  PagedAttention checked_inputs(const NodeIo& io) const;

  ModelContext& context_;
  AttentionShape shape_;
  std::string output_name_;
};

PagedAttentionOp::PagedAttentionOp(ModelContext& context, const NodeInfo& node)
    : context_(context),
      shape_{.num_heads = integer(node, "num_heads", 1, kMaxHeads),
             .num_kv_heads = integer(node, "num_kv_heads", 1, kMaxHeads),
             .head_dim = integer(node, "head_dim", 4, kMaxHeadDim),
             .rotary_dim = integer(node, "rotary_dim", 0, kMaxHeadDim),
             .is_interleaved = node.integer("interleaved", 0, 1) == 1,
             .scale = node.real("scale"),
             .sliding_window = integer(node, "sliding_window", 0, kMaxWindow),
             .softcap = node.real("softcap"),
             .norm_epsilon = node.real("norm_epsilon"),
             .shares_cache = node.integer_or("shared_kv", 0, 1, 0) == 1},
      output_name_(node.output_name(0)) {
  require_kernels(shape_);
  require_kernels(context.pass().block_size);
  context_.reserve_attention(shape_);
}

PagedAttention PagedAttentionOp::checked_inputs(const NodeIo& io) const {
  const Tensor qkv = io.input(kQkv), positions = io.input(kPositionIds);
  const Tensor seq_starts = io.input(kSeqStarts), context_lens = io.input(kContextLens);
  const Tensor block_table = io.input(kBlockTable), tree_mask = io.input(kTreeMask);
  const Tensor cos = io.input(kCos), sin = io.input(kSin);
  const Tensor keys = io.input(kKeyCache), values = io.input(kValueCache);
  const Tensor q_norm = io.input(kQNorm), k_norm = io.input(kKNorm), slopes = io.input(kSlopes);
  const Tensor key_biases = io.input(kKeyBiases), sinks = io.input(kSinks), v_norm = io.input(kVNorm);

  require_shape("qkv", qkv, {-1, int64_t{shape_.num_given()} * shape_.head_dim});
  const int64_t num_rows = qkv.dims[0], num_seqs = context_lens.count();
  require(num_seqs >= 1, "context_lens has shape ", context_lens, ": a pass has a sequence at least");
  require_shape("context_lens", context_lens, {num_seqs});
  require(num_seqs == 1 || (num_seqs <= num_rows && num_rows <= kMaxSplitRows), "a pass of ", num_seqs,
          " sequences has ", num_rows, " rows, which may be ", num_seqs, " to ", kMaxSplitRows);
  const int most_rows = num_seqs > 1 ? context_.most_sequence_rows() : 0;
  require(most_rows == 0 || most_rows * num_seqs >= num_rows, "a pass of ", num_seqs, " sequences of ", most_rows,
          " rows at most has ", num_rows, " rows");
  const CudaPassLimits& pass = context_.pass();
  require(num_rows <= pass.max_rows, "qkv has shape ", qkv, ", more rows than the largest pass");
  require_shape("position_ids", positions, {num_rows});
  require_shape("seq_starts", seq_starts, {num_seqs + 1});
  require_shape("block_table", block_table, {num_seqs, pass.max_blocks});
  const bool is_causal = tree_mask.count() == 0;
  require_shape("tree_mask", tree_mask, {is_causal ? 0 : num_rows});
  require(is_causal || num_rows <= kMaxSplitRows, "a pass with tree_mask has ", num_rows, " rows, at most ",
          kMaxSplitRows);
  require_shape("cos", cos, {-1, shape_.rotary_dim / 2});
  require_shape("sin", sin, {cos.dims[0], shape_.rotary_dim / 2});
  const CacheType type = checked_caches(keys, values, pass.block_size, shape_.num_kv_heads, shape_.head_dim);
  require_kernels(type);
  if (q_norm.exists()) require_shape("q_norm", q_norm, {shape_.head_dim});
  if (k_norm.exists()) require_shape("k_norm", k_norm, {shape_.head_dim});
  if (v_norm.exists()) require_shape("v_norm", v_norm, {shape_.head_dim});
  if (slopes.exists()) require_shape("slopes", slopes, {shape_.num_heads});
  if (key_biases.exists()) require_key_biases(key_biases, cos.dims[0], shape_.num_heads, shape_.sliding_window);
  if (sinks.exists()) require_shape("sinks", sinks, {shape_.num_heads});
  require(!shape_.shares_cache || !(k_norm.exists() || v_norm.exists()), k_norm.exists() ? "k_norm" : "v_norm",
          " is given, and shared_kv is 1: the cache has keys and values");
  return {.shape = shape_,
          .num_rows = static_cast<int>(num_rows),
          .num_seqs = static_cast<int>(num_seqs),
          .most_sequence_rows = most_rows,
          .max_blocks = pass.max_blocks,
          .block_size = pass.block_size,
          .cache_type = type,
          .qkv = qkv.as<const float>(),
          .position_ids = positions.as<const int32_t>(),
          .seq_starts = seq_starts.as<const int32_t>(),
          .context_lens = context_lens.as<const int32_t>(),
          .block_table = block_table.as<const int32_t>(),
          .tree_mask = is_causal ? nullptr : tree_mask.as<const uint64_t>(),
          .cos = cos.as<const float>(),
          .sin = sin.as<const float>(),
          .q_norm = q_norm.as<const float>(),
          .k_norm = k_norm.as<const float>(),
          .key_cache = keys.data,
          .value_cache = values.data,
          .queries = context_.queries(),
          .partials = context_.attention_partials(),
          .out = io.output(0, {num_rows, int64_t{shape_.num_heads} * shape_.head_dim}),
          .halves_out = nullptr,
          .num_sms = context_.limits().num_sms,
          .slopes = slopes.as<const float>(),
          .key_biases = key_biases.as<const float>(),
          .sinks = sinks.as<const float>(),
          .v_norm = v_norm.as<const float>()};
}

void PagedAttentionOp::enqueue(const NodeIo& io, cudaStream_t stream) const {
  PagedAttention attention = checked_inputs(io);
  if (attention.num_rows == 0) return;
  const ModelContext::Size size{attention.num_rows, shape_.num_heads * shape_.head_dim};
  attention.halves_out = context_.begin_copy(output_name_, ModelContext::Can::kCopy, size).halves;
  PILOTFISH_CUDA_CHECK(launch_paged_attention(attention, stream));
}

}  // namespace

OperatorPtr paged_attention_op(ModelContext& context) {
  return std::make_shared<CudaOperator<PagedAttentionOp>>(context);
}

}  // namespace pilotfish::cuda
