// Every launcher of libpilotfish_cuda: the border between host code and device code.
// A launcher takes device pointers, sizes and a stream; it allocates nothing and synchronises nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "attention_shape.h"
#include "base/cache_type.h"
#include "base/norm_activation.h"
#include "base/row_program.h"
#include "device/round_kernels.h"
#include "device/row_gather.h"

namespace pilotfish::cuda {

/// Rows (tokens) that one pass of the low-bit linear takes at most.
inline constexpr int kMaxLinearRows = 64;

/// Integer weights with one f16 scale a block of 32 input columns, kInt4Asym with an f16 offset beside it; or plain
/// f16. `native/GRAPH.md` gives the packed bytes.
enum class WeightFormat { kInt4, kInt4Asym, kInt8, kF16 };

/// What decides how work is divided: read from the device once, at load.
struct DeviceLimits {
  int num_sms;
  size_t shared_bytes_per_sm;
  size_t shared_bytes_per_block;  // with the opt-in
  size_t cache_bytes;             // L2
};

struct LowbitShape {
  WeightFormat format;
  int in_features;   // K, a multiple of 8
  int out_features;  // N, rows of the weight; gate and up together for SwiGLU
};

/// How many thread blocks share the work of one shape. Each takes an equal run of the weight, which cuts K sums at
/// places that fix the order of every addition: the plan depends on the shape and the device alone, never on the number
/// of rows, and that keeps a row's bits the same in every pass.
///
/// A small weight is resident instead: every 32 rows have a block or two of their own, whose warps divide K; the whole
/// weight lies in shared memory before the predecessor has ended, and no rows wait for others.
/// So have weights of f16, which lie in registers instead.
struct LowbitPlan {
  int num_blocks;
  bool is_resident = false;
};

/// Blocks that read the same few KB at once wait for each other: L2 gives 64 bytes of a place a clock. What many blocks
/// read lies in so many places, where leaves_copies() says so.
inline constexpr int kInputCopies = 4;
inline constexpr int kMostCopiedRows = 8;

/// A copy of a result for the linear that reads it next. With `weight` that linear has a norm: the copy is f16(x *
/// weight), and the rest of the norm, the row's size, is applied to its sums. No copy where `halves` is null.
struct NextInput {
  void* halves;         // [num_rows, columns]
  const float* weight;  // [columns] or null: f16(x)
  float* squares;       // with weight: [num_rows, num_square_parts(columns)], sums of squares of 32 columns each; zeros
                        // behind the last part
  int copy_stride = 0;  // of the halves' kInputCopies places, in elements; 0: there is one
};

/// What remains of the norm of a linear whose input is such a copy; none where `squares` is null.
struct InputNorm {
  const float* squares;
  float epsilon;
  float unscale;  // of the copy's weight
};

__host__ __device__ constexpr int num_square_parts(int columns) { return (columns + 511) / 512 * 16; }

enum class OutputType { kF16, kF32 };
enum class Activation { kNone, kSwiGlu };

/// Where a weight is when it is read again: in L2, or, one of many, not.
enum class Passes { kIntoCache, kThroughCache };

/// Linears that follow each other take turns: lowbit_linear.cu says why. It changes no bits.
enum class Turn { kFirst, kSecond };

struct LowbitLinear {
  LowbitShape shape;
  LowbitPlan plan;
  const void* weights;   // repacked, see repack_lowbit()
  const void* x;         // f16 [num_rows, in_features]
  int x_copy_stride;     // NextInput::copy_stride of whoever left x
  const float* bias;     // [out_features] or null; gate and up interleaved by 16 as the weight rows
  const void* residual;  // [num_rows, columns of out] of the output type, or null; may alias out
  void* out;             // [num_rows, out_features], half as many columns with SwiGLU
  OutputType output_type;
  Activation activation;
  int num_rows;  // 1..kMaxLinearRows
  Passes passes;
  Turn turn;
  InputNorm input_norm;
  NextInput next;   // with output_type kF32; a weight only without SwiGLU
  float* partials;  // lowbit_partial_bytes(), every byte 0xFF before the first launch and again after each one;
                    // shared by all linears of a stream
};

/// Reads the limits of the current device.
cudaError_t read_device_limits(DeviceLimits* limits_out);
/// Whether this library has code for the current device.
cudaError_t has_kernels();

/// One thread block a multiprocessor, where there is work for all.
LowbitPlan plan_lowbit_linear(const LowbitShape& shape, const DeviceLimits& limits);

/// Whether a linear leaves NextInput's halves in kInputCopies places where it is asked to.
bool leaves_copies(const LowbitShape& shape, const LowbitPlan& plan, int num_rows);

/// Bytes of a weight of `shape` as the bundle packs it, and repacked.
size_t packed_lowbit_bytes(const LowbitShape& shape);
size_t lowbit_weight_bytes(const LowbitShape& shape);
/// Bytes of `partials` for `num_rows` rows.
size_t lowbit_partial_bytes(const LowbitPlan& plan, int num_rows);

/// Reorders a packed weight of the bundle (device memory, tiles of 16 rows) into the order that the linear's
/// tensor-core operands are read in. `weights_out` holds lowbit_weight_bytes().
cudaError_t repack_lowbit(const LowbitShape& shape, const void* packed, void* weights_out, cudaStream_t stream);

/// out[row] = scale * weight[ids[row]], f32 [num_rows, in_features], from a repacked weight. Ids outside 0..N - 1 give
/// NaN.
cudaError_t launch_embedding(const LowbitShape& shape, const void* weights, const int32_t* ids, int num_rows,
                             float scale, float* out, const NextInput& next, cudaStream_t stream);

/// Columns of a linear's input come by eight.
__host__ __device__ constexpr int padded_columns(int num_columns) { return (num_columns + 7) / 8 * 8; }

/// out = f16(x / rms(x) * weight) a row, saturating; without `weight` just f16(x). A row of halves_out has
/// padded_columns(num_columns), zeros behind its own.
cudaError_t launch_rms_norm(const float* x, const float* weight, float epsilon, int num_rows, int num_columns,
                            void* halves_out, cudaStream_t stream);

/// y = W x (+ bias), SwiGLU where asked, (+ residual). f16 activations times exact integers, f32 scales and sums. A
/// row's bits do not depend on num_rows. On compute capability 9.0 and later it starts before its predecessor in the
/// stream has ended and reads its weights ahead: the weights must be complete before that predecessor is launched.
/// Blocks of a launch wait for each other's sums: do not run it beside another such kernel on a stream of higher
/// priority. Returns cudaErrorInvalidValue for sizes outside the limits above.
cudaError_t launch_lowbit_linear(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream);

/// Rows that one launch for a prompt takes at most: what bounds its scratch memory.
inline constexpr int kMaxPrefillRows = 512;

/// Whether a linear of so many rows is sooner done at once than 64 rows at a time. Bits are the same.
bool prefers_prefill(const LowbitShape& shape, int num_rows, const DeviceLimits& limits);

/// The linear for up to kMaxPrefillRows rows, with the bits of launch_lowbit_linear(). `scratch` holds
/// prefill_scratch_bytes() for them; linear.partials and linear.turn are not used.
cudaError_t launch_prefill_linear(const LowbitLinear& linear, void* scratch, const DeviceLimits& limits,
                                  cudaStream_t stream);
size_t prefill_scratch_bytes(const LowbitShape& shape, int num_rows);

struct RowStepTensors {
  int64_t num_rows;
  std::array<const float*, kMostRowInputs> inputs;  // [num_rows, width], then vectors [width]
  std::array<float*, kMostRowOutputs> outputs;      // [num_rows, width]
};

/// The values of a row's steps that are no outputs, in shared memory.
inline size_t row_step_shared_bytes(const RowProgram& program) noexcept {
  return static_cast<size_t>(program.num_scratch) * sizeof(float);
}
/// Shared memory that the kernel has beside them, at most, and the 1 KiB a block that CUDA takes.
inline constexpr size_t kOwnRowStepBytes = 5 << 10;

/// A program of RowSteps on at least one row. A row's bits do not depend on num_rows.
cudaError_t launch_row_steps(const RowProgram& program, const RowStepTensors& tensors, cudaStream_t stream);

/// Row i of the target becomes row gather.rows[i] of the source. What follows starts when it has ended.
cudaError_t launch_gather_rows(const RowGather& gather, cudaStream_t stream);

/// Row i of `out` is row rows[i] of `source`; NaN where the source has no such row.
struct PickedRows {
  const float* source;  // [num_source_rows, num_columns]
  const int32_t* rows;  // [num_rows]
  int num_source_rows;
  int num_rows;
  int num_columns;
  float* out;  // [num_rows, num_columns]
};
cudaError_t launch_pick_rows(const PickedRows& picked, cudaStream_t stream);

inline constexpr int kMostJoinedParts = 8;

/// A row of `out` has that of each part, one behind the other.
struct JoinColumns {
  const float* parts[kMostJoinedParts];  // [num_rows, widths[i]]
  int widths[kMostJoinedParts];
  int num_parts;
  int num_rows;
  int num_columns;   // of all parts together
  float* out;        // [num_rows, num_columns]
  void* halves_out;  // f16 copy of out, saturating, or null
};
cudaError_t launch_join_columns(const JoinColumns& join, cudaStream_t stream);

/// out = activation(norm(x) * weight + bias) + residual a row.
struct NormActivation {
  NormSettings settings;
  int num_rows;
  int num_columns;
  const float* x;         // [num_rows, num_columns]
  const float* weight;    // [num_columns] or null: ones
  const float* bias;      // [num_columns] or null
  const float* residual;  // as x, or null
  float* out;             // as x
  void* halves_out;       // f16 copy of out, saturating, or null
};
cudaError_t launch_norm_activation(const NormActivation& norm, cudaStream_t stream);

/// Reads `num_bytes` (a multiple of 16) of device memory and does nothing else: the or of all bits goes to `found`.
cudaError_t launch_read(const void* data, size_t num_bytes, uint32_t* found, const DeviceLimits& limits,
                        cudaStream_t stream);

// ---- paged attention ----

/// Passes of at most so many rows cut the context over thread blocks.
inline constexpr int kMaxSplitRows = 64;

/// Inputs of `native/GRAPH.md`, all in device memory. Passes of at most kMaxSplitRows rows may have several sequences,
/// each of which has a row at least; rows behind those of the last one are padding, of which nothing is written.
struct PagedAttention {
  AttentionShape shape;
  int num_rows;
  int num_seqs = 1;
  int most_sequence_rows = 0;  // that any of several sequences has, which decides the grid; 0: it is not known
  int max_blocks;              // columns of block_table
  int block_size;              // a power of two, at least 32
  CacheType cache_type;        // is_on_gpus()
  const float* qkv;            // [num_rows, shape.num_given() head_dim]
  const int32_t* position_ids;
  const int32_t* seq_starts;    // not read for one sequence
  const int32_t* context_lens;  // [num_seqs]
  const int32_t* block_table;   // [num_seqs, max_blocks]
  const uint64_t* tree_mask;    // null: causal
  const float* cos;
  const float* sin;
  const float* q_norm;  // or null
  const float* k_norm;  // or null
  void* key_cache;      // [num_blocks, num_kv_heads, block_size, head_dim]; scales of a block lie behind its bytes
  void* value_cache;
  void* queries;     // scratch, [num_rows, num_heads, head_dim] of two bytes
  float* partials;   // scratch, attention_partial_bytes(), every byte 0xFF before the first launch and after each one
  float* out;        // [num_rows, num_heads head_dim]
  void* halves_out;  // f16 copy of out, or null
  int num_sms;
  const float* slopes = nullptr;      // [num_heads] or null: what a score loses for each position before the query
  const float* key_biases = nullptr;  // [positions, num_heads] or null: what a score gets by its key's position
  const float* sinks = nullptr;       // [num_heads] or null: a score of no key, in the sum of weights alone
  const float* v_norm = nullptr;      // [head_dim] or null
};

/// Scratch for passes of up to `max_rows` rows and sequences of max_blocks blocks.
size_t attention_partial_bytes(const AttentionShape& shape, int max_rows, int max_blocks, int block_size);

/// Normalises and rotates the rows' queries and keys, writes keys and values into the cache and attends over it. A
/// row's bits depend on its query and on the keys and values it sees, in their order, alone: 128 keys are a split with
/// a softmax of its own, and splits are added in order, whoever computes them. Reads ahead: the inputs but qkv, and the
/// slots of the cache that this pass does not write, must be complete before the first kernel of the pass is launched.
cudaError_t launch_paged_attention(const PagedAttention& attention, cudaStream_t stream);

// ---- a round ----

/// These start when their predecessors have ended, and what follows them starts when they have.
cudaError_t launch_round_start(const RoundMemory& memory, cudaStream_t stream);
/// The likeliest token of each row, the lowest id among equals.
cudaError_t launch_choose_likeliest(const DraftStep& step, const RoundMemory& memory, cudaStream_t stream);
cudaError_t launch_choose_likeliest(const TargetChoice& choice, const RoundMemory& memory, cudaStream_t stream);
/// For sampling, before any of the others: what they take the largest of. Filters, and the noise of the round's seed.
cudaError_t launch_add_noise(const NoisyRows& noisy, const RoundMemory& memory, cudaStream_t stream);
/// What comes after the search for the likeliest tokens of a level's rows.
cudaError_t launch_grow_tree(const TreeStep& step, const RoundMemory& memory, cudaStream_t stream);
/// The few largest logits of each row.
cudaError_t launch_find_likeliest(const LogitRows& rows, const LikelyMemory& memory, cudaStream_t stream);

}  // namespace pilotfish::cuda
