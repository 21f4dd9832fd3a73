// The operator PagedAttention of GRAPH.md.
#include <algorithm>
#include <bit>
#include <memory>
#include <string>

#include "kernel_io.h"
#include "operator.h"
#include "operators.h"
#include "paged_attention.h"
#include "paged_attention_inputs.h"

namespace pilotfish {
namespace {

using namespace attention_input;

constexpr int64_t kMaxTreeRows = 64;

KvPool kv_pool(const AttentionShape& shape, const Tensor& keys, const Tensor& values) {
  const CacheType type = checked_caches(keys, values, -1, shape.num_kv_heads, shape.head_dim);
  require(keys.dims[1] > 0, "key_cache has shape ", keys, ": blocks without slots");
  return {type, keys.data, values.data, keys.dims[1]};
}

void check_starts(const AttentionRows& rows) {
  require(rows.seq_starts[0] == 0, Element{"seq_starts", 0, rows.seq_starts[0]}, ", not 0");
  for (int64_t sequence = 0; sequence < rows.num_seqs; ++sequence) {
    require(rows.seq_starts[sequence + 1] >= rows.seq_starts[sequence],
            Element{"seq_starts", sequence + 1, rows.seq_starts[sequence + 1]}, ", less than before it");
  }
  require(rows.seq_starts[rows.num_seqs] == rows.num_rows,
          Element{"seq_starts", rows.num_seqs, rows.seq_starts[rows.num_seqs]}, ", not the number of rows, ",
          rows.num_rows);
}

// Slots behind the context that the rows of a sequence write or may see.
int64_t num_slots(const AttentionRows& rows, int64_t sequence) {
  const int64_t last_row = rows.seq_starts[sequence + 1], num_rows = last_row - rows.seq_starts[sequence];
  return rows.tree_mask == nullptr || num_rows == 0 ? num_rows : std::bit_width(rows.tree_mask[last_row - 1]);
}

void check_blocks(const AttentionRows& rows, const KvPool& pool, int64_t num_blocks) {
  for (int64_t sequence = 0; sequence < rows.num_seqs; ++sequence) {
    const int64_t context = rows.context_lens[sequence], num_new = num_slots(rows, sequence);
    require(context >= 0, Element{"context_lens", sequence, context}, ", not at least 0");
    const int64_t num_used = (context + num_new + pool.block_size - 1) / pool.block_size;
    require(num_used <= rows.max_blocks, Element{"context_lens", sequence, context}, ": with ", num_new,
            " rows more than the ", rows.max_blocks, " blocks of block_table hold");
    for (int64_t block = sequence * rows.max_blocks; block < sequence * rows.max_blocks + num_used; ++block) {
      const int64_t id = rows.block_table[block];
      require(id >= 0 && id < num_blocks, Element{"block_table", block, id}, ", not in 0..", num_blocks - 1);
    }
  }
}

// Keys behind the context that a row of a sequence sees, at most; a row of a tree sees those of its own path alone.
int64_t num_new_keys(const AttentionRows& rows, int64_t sequence) {
  const int64_t first = rows.seq_starts[sequence], last = rows.seq_starts[sequence + 1];
  if (rows.tree_mask == nullptr) return last - first;
  int most = 0;
  for (int64_t row = first; row < last; ++row) most = std::max(most, std::popcount(rows.tree_mask[row]));
  return most;
}

// The keys that a row sees are numbered by position.
void check_biases(const AttentionRows& rows, int64_t num_positions) {
  for (int64_t sequence = 0; sequence < rows.num_seqs; ++sequence) {
    const int64_t context = rows.context_lens[sequence], num_new = num_new_keys(rows, sequence);
    require(context + num_new <= num_positions, Element{"context_lens", sequence, context}, ": a row sees ",
            context + num_new, " keys, more than the ", num_positions, " positions of key_biases");
  }
}

void check_positions(const AttentionRows& rows, int64_t num_positions) {
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    const int64_t position = rows.position_ids[row];
    require(position >= 0 && position < num_positions, Element{"position_ids", row, position}, ", not in 0..",
            num_positions - 1);
  }
}

void check_tree(const AttentionRows& rows) {
  for (int64_t sequence = 0; sequence < rows.num_seqs; ++sequence) {
    const int64_t first = rows.seq_starts[sequence], num_rows = rows.seq_starts[sequence + 1] - first;
    require(num_rows <= kMaxTreeRows, "a sequence with tree_mask has ", num_rows, " rows, at most 64");
    int64_t least_width = 1;
    for (int64_t row = first; row < first + num_rows; ++row) {
      const uint64_t mask = rows.tree_mask[row];
      const int64_t width = std::bit_width(mask);
      require(width >= least_width, "tree_mask[", row, "] is ", mask, ": its highest bit must be the row's own, bit ",
              least_width - 1, " or a later one");
      least_width = width + 1;
    }
  }
}

class PagedAttentionOp {
 public:
  static constexpr const char* kName = "PagedAttention";
  static constexpr std::array kInputs = attention_input::all(ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED);

  explicit PagedAttentionOp(const KernelInfo& info);
  void compute(const KernelContext& context) const;

 private:
  AttentionShape shape_;
};

PagedAttentionOp::PagedAttentionOp(const KernelInfo& info)
    : shape_{.num_heads = info.integer("num_heads", 1, kMaxHeads),
             .num_kv_heads = info.integer("num_kv_heads", 1, kMaxHeads),
             .head_dim = info.integer("head_dim", 1, kMaxHeadDim),
             .rotary_dim = info.integer("rotary_dim", 0, kMaxHeadDim),
             .rotary_style = info.integer("interleaved", 0, 1) == 0 ? RotaryStyle::kHalves : RotaryStyle::kPairs,
             .scale = info.real("scale"),
             .sliding_window = info.integer("sliding_window", 0, kMaxWindow),
             .softcap = info.real("softcap"),
             .norm_epsilon = info.real("norm_epsilon"),
             .kv_source = info.integer_or("shared_kv", 0, 1, 0) == 0 ? KvSource::kOwn : KvSource::kShared} {
  require(shape_.num_heads % shape_.num_kv_heads == 0, "num_heads is ", shape_.num_heads,
          ", not a multiple of num_kv_heads, ", shape_.num_kv_heads);
  require(shape_.rotary_dim % 2 == 0 && shape_.rotary_dim <= shape_.head_dim, "rotary_dim is ", shape_.rotary_dim,
          ", not even and at most head_dim, ", shape_.head_dim);
  require(shape_.softcap >= 0, "softcap is ", shape_.softcap, ", not at least 0");
  require(shape_.norm_epsilon >= 0, "norm_epsilon is ", shape_.norm_epsilon, ", not at least 0");
}

void PagedAttentionOp::compute(const KernelContext& context) const {
  const Tensor qkv = context.input(kQkv), positions = context.input(kPositionIds);
  const Tensor seq_starts = context.input(kSeqStarts), context_lens = context.input(kContextLens);
  const Tensor block_table = context.input(kBlockTable), tree_mask = context.input(kTreeMask);
  const Tensor cos = context.input(kCos), sin = context.input(kSin);
  const Tensor keys = context.input(kKeyCache), values = context.input(kValueCache);
  const Tensor q_norm = context.input(kQNorm), k_norm = context.input(kKNorm), slopes = context.input(kSlopes);
  const Tensor key_biases = context.input(kKeyBiases), sinks = context.input(kSinks), v_norm = context.input(kVNorm);

  require_shape("qkv", qkv, {-1, shape_.num_given() * shape_.head_dim});
  require_shape("context_lens", context_lens, {-1});
  const int64_t num_rows = qkv.dims[0], num_seqs = context_lens.dims[0];
  require_shape("position_ids", positions, {num_rows});
  require_shape("seq_starts", seq_starts, {num_seqs + 1});
  require_shape("block_table", block_table, {num_seqs, -1});
  const bool is_causal = tree_mask.count() == 0;
  require_shape("tree_mask", tree_mask, {is_causal ? 0 : num_rows});
  require_shape("cos", cos, {-1, shape_.rotary_dim / 2});
  require_shape("sin", sin, {cos.dims[0], shape_.rotary_dim / 2});
  if (q_norm.exists()) require_shape("q_norm", q_norm, {shape_.head_dim});
  if (k_norm.exists()) require_shape("k_norm", k_norm, {shape_.head_dim});
  if (v_norm.exists()) require_shape("v_norm", v_norm, {shape_.head_dim});
  if (slopes.exists()) require_shape("slopes", slopes, {shape_.num_heads});
  if (key_biases.exists()) require_key_biases(key_biases, cos.dims[0], shape_.num_heads, shape_.sliding_window);
  if (sinks.exists()) require_shape("sinks", sinks, {shape_.num_heads});
  const bool norms_own = k_norm.exists() || v_norm.exists();
  require(shape_.kv_source == KvSource::kOwn || !norms_own, k_norm.exists() ? "k_norm" : "v_norm",
          " is given, and shared_kv is 1: the cache has keys and values");
  const KvPool pool = kv_pool(shape_, keys, values);

  const AttentionRows rows = {.num_rows = num_rows,
                              .num_seqs = num_seqs,
                              .max_blocks = block_table.dims[1],
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
                              .v_norm = v_norm.as<const float>(),
                              .slopes = slopes.as<const float>(),
                              .key_biases = key_biases.as<const float>(),
                              .sinks = sinks.as<const float>(),
                              .out = context.output(0, {num_rows, shape_.num_heads * shape_.head_dim})};
  check_starts(rows);
  if (!is_causal) check_tree(rows);
  check_blocks(rows, pool, keys.dims[0]);
  check_positions(rows, cos.dims[0]);
  if (key_biases.exists()) check_biases(rows, cos.dims[0]);
  paged_attention(shape_, pool, rows, context.parallel());
}

}  // namespace

OperatorPtr paged_attention_op(int32_t num_threads) {
  return std::make_shared<Operator<PagedAttentionOp>>(num_threads);
}

}  // namespace pilotfish
