// The kernels of every instruction set that runs here give the portable ones' bits: each format of `linear` with each
// number of rows of a panel, and attention over each type of cache. It prints a digest of the portable results, which
// is the same on every kind of processor.
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "attention_kernels.h"
#include "check.h"
#include "float16.h"
#include "instruction_set.h"
#include "linear_kernels.h"

using namespace pilotfish;

namespace {

struct Kernels {
  InstructionSet set;
  const LinearKernels& linear;
  const AttentionKernels& attention;
};

std::vector<Kernels> other_kernels() {
  const std::vector<Kernels> all = {
#if defined(__x86_64__)
      {InstructionSet::kAvx2, avx2::kLinearKernels, avx2::kAttentionKernels},
      {InstructionSet::kAvx512, avx512::kLinearKernels, avx512::kAttentionKernels},
#elif defined(__aarch64__)
      {InstructionSet::kNeon, neon::kLinearKernels, neon::kAttentionKernels},
      {InstructionSet::kDotprod, dotprod::kLinearKernels, neon::kAttentionKernels},
      {InstructionSet::kI8mm, i8mm::kLinearKernels, neon::kAttentionKernels},
#endif
  };
  std::vector<Kernels> here;
  for (const Kernels& kernels : all) {
    if (runs_here(kernels.set)) here.push_back(kernels);
  }
  return here;
}

// The same numbers with every standard library, unlike its distributions.
class Numbers {
 public:
  float next() { return static_cast<float>(static_cast<int32_t>(generator_())) * 0x1p-31f; }
  uint32_t bits() { return generator_(); }
  std::vector<float> make(int64_t count, float scale) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = next() * scale;
    return values;
  }

 private:
  std::mt19937 generator_{7};
};

struct Digest {
  uint64_t value = 0xcbf29ce484222325u;  // FNV-1a
  void add(const void* data, size_t num_bytes) {
    for (size_t i = 0; i < num_bytes; ++i) value = (value ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3u;
  }
};

// Any bytes are weights of the integer formats; scales are halves of ordinary size.
std::vector<std::byte> make_weights(WeightFormat format, int64_t num_rows, int64_t num_columns, Numbers& numbers) {
  std::vector<std::byte> packed(packed_bytes(format, num_rows, num_columns));
  const size_t group = group_bytes(format);
  const size_t integers =
      format == WeightFormat::kInt8 ? 2 * kInt8BlockBytes : (is_integer(format) ? 2 * kInt4BlockBytes : 0);
  for (size_t at = 0; at < packed.size(); at += group) {
    for (size_t i = 0; i < integers; ++i) packed[at + i] = static_cast<std::byte>(numbers.bits());
    for (size_t i = integers; i < group; i += format == WeightFormat::kF32 ? 4 : 2) {
      const float value = numbers.next() * 0.1f;
      const uint16_t half = float_to_half(value);
      if (format == WeightFormat::kF32) {
        std::memcpy(&packed[at + i], &value, 4);
      } else {
        std::memcpy(&packed[at + i], &half, 2);
      }
    }
  }
  return packed;
}

std::vector<float> run_linear(const LinearKernels& kernels, const LinearWeights& weights, int64_t num_rows,
                              const std::vector<float>& x, const std::vector<float>& residual) {
  std::vector<float> y(static_cast<size_t>(num_rows * weights.num_outputs()));
  std::vector<std::byte> panel(panel_bytes(weights.format, weights.in_features, num_rows));
  for (int64_t first = 0; first < num_rows; first += kernels.max_panel_rows) {
    const int64_t count = std::min(num_rows - first, kernels.max_panel_rows), at = first * weights.num_outputs();
    kernels.pack(weights, x.data() + first * weights.in_features, count, panel.data());
    kernels.multiply(weights, panel.data(),
                     {count, x.data() + first * weights.in_features, residual.data() + at, y.data() + at}, 0,
                     ceil_div(weights.num_outputs(), kTileRows));
  }
  return y;
}

std::vector<float> run_refined(const LinearKernels& kernels, const LinearWeights& weights,
                               const std::vector<float>& x) {
  std::vector<float> y(static_cast<size_t>(weights.num_outputs()));
  std::vector<std::byte> panel(panel_bytes(weights.format, weights.in_features, 2));
  kernels.pack_refined(weights, x.data(), panel.data());
  kernels.multiply_refined(weights, panel.data(), {1, x.data(), nullptr, y.data()}, 0,
                           ceil_div(weights.num_outputs(), kTileRows));
  return y;
}

void test_refined(const std::vector<Kernels>& others, Digest& digest) {
  Numbers numbers;
  constexpr int64_t kColumns = 224, kFeatures = 64;
  for (const WeightFormat format : {WeightFormat::kInt4, WeightFormat::kInt4Asym, WeightFormat::kInt8}) {
    const auto packed = make_weights(format, kFeatures, kColumns, numbers);
    const auto norm = numbers.make(kColumns, 2);
    auto x = numbers.make(kColumns, 1);
    x[40] = 500;
    const LinearWeights weights{format,  Activation::kSwiglu, kColumns, kFeatures, packed.data(),
                                nullptr, norm.data(),         1e-5f};
    const auto expected = run_refined(portable::kLinearKernels, weights, x);
    digest.add(expected.data(), expected.size() * sizeof(float));
    for (const Kernels& other : others) {
      const auto found = run_refined(other.linear, weights, x);
      if (std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) != 0) {
        check::failed(__FILE__, __LINE__, instruction_set_name(other.set), ": format ", static_cast<int>(format),
                      ", a refined row differs from portable");
      }
    }
  }
}

void test_linear(const std::vector<Kernels>& others, Digest& digest) {
  Numbers numbers;
  constexpr int64_t kOutputs = 72;  // with a tile that is not full
  for (const int format : {0, 1, 2, 3, 4}) {
    for (const Activation activation : {Activation::kNone, Activation::kSwiglu}) {
      for (int64_t num_rows = 1; num_rows <= 17; ++num_rows) {
        const int64_t num_columns = num_rows % 2 == 0 ? 224 : 100;
        const int64_t features = activation == Activation::kSwiglu ? 64 : kOutputs;
        LinearWeights weights{
            static_cast<WeightFormat>(format), activation, num_columns, features, nullptr, nullptr, nullptr, 1e-5f};
        const auto packed = make_weights(weights.format, features, num_columns, numbers);
        const auto bias = numbers.make(features, 1), norm = numbers.make(num_columns, 2);
        auto x = numbers.make(num_rows * num_columns, num_rows % 5 == 0 ? 1e-6f : 3.0f);
        if (num_rows == 3) std::fill_n(x.begin(), 40, 0.0f);
        const auto residual = numbers.make(num_rows * features, 1);
        weights.packed = packed.data();
        weights.bias = bias.data();
        if (num_rows % 3 != 0) weights.norm_weight = norm.data();
        const auto expected = run_linear(portable::kLinearKernels, weights, num_rows, x, residual);
        digest.add(expected.data(), expected.size() * sizeof(float));
        for (const Kernels& other : others) {
          const auto found = run_linear(other.linear, weights, num_rows, x, residual);
          if (std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) != 0) {
            check::failed(__FILE__, __LINE__, instruction_set_name(other.set), ": format ", format, ", ", num_rows,
                          " rows differ from portable");
          }
        }
      }
    }
  }
}

// Rows of one sequence after a context, written to and read from a cache of their own.
struct AttentionRun {
  std::vector<uint8_t> keys, values;
  std::vector<float> out;
};

AttentionRun run_attention(const AttentionKernels& kernels, const AttentionShape& shape, CacheType type) {
  constexpr int64_t kSlots = 320, kBlockSize = 16, kRows = 5;
  Numbers numbers;
  AttentionRun run;
  const int64_t bytes = kSlots * shape.num_kv_heads * static_cast<int64_t>(cache_row_bytes(type, shape.head_dim));
  run.keys.resize(static_cast<size_t>(bytes));
  run.values.resize(static_cast<size_t>(bytes));
  const KvPool pool{type, run.keys.data(), run.values.data(), kBlockSize};
  std::vector<int32_t> positions(kSlots), blocks(kSlots / kBlockSize);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>((i * 7 + 3) % blocks.size());
  const auto qkv = numbers.make(kSlots * (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim, 2);
  const auto cos = numbers.make(kSlots * shape.rotary_dim / 2, 1), sin = numbers.make(kSlots * shape.rotary_dim / 2, 1);
  const auto norm = numbers.make(shape.head_dim, 1);
  const auto slopes = numbers.make(shape.num_heads, 1), biases = numbers.make(kSlots * shape.num_heads, 1);
  const AttentionRows rows{.num_rows = kSlots,
                           .num_seqs = 1,
                           .max_blocks = 0,
                           .qkv = qkv.data(),
                           .position_ids = positions.data(),
                           .seq_starts = nullptr,
                           .context_lens = nullptr,
                           .block_table = nullptr,
                           .tree_mask = nullptr,
                           .cos = cos.data(),
                           .sin = sin.data(),
                           .q_norm = norm.data(),
                           .k_norm = norm.data(),
                           .v_norm = shape.head_dim > 128 ? norm.data() : nullptr,
                           .slopes = nullptr,
                           .key_biases = nullptr,
                           .sinks = nullptr,
                           .out = nullptr};
  std::vector<float> queries(static_cast<size_t>(kSlots * shape.num_heads * shape.head_dim));
  for (int64_t row = 0; row < kSlots; ++row) {
    const int64_t slot = blocks[static_cast<size_t>(row / kBlockSize)] * kBlockSize + row % kBlockSize;
    kernels.prepare_row(shape, pool, rows, row, slot, queries.data() + row * shape.num_heads * shape.head_dim);
  }
  // A row sees all of the context, a part of it, or besides a path of the tree.
  const std::vector<RowView> views = {
      {0, 300, 0, 0}, {37, 301, 0, 0}, {0, 300, 300, 0b101}, {9, 130, 300, 0b11010}, {299, 300, 0, 0}};
  const int64_t group = shape.group_size(), num_queries = kRows * group;
  run.out.resize(static_cast<size_t>(kRows * shape.num_heads * shape.head_dim));
  const auto partials = static_cast<size_t>(num_queries * partial_floats(shape.head_dim));
  std::vector<float> running(partials), later(partials);
  std::vector<float> scratch(static_cast<size_t>(attend_scratch_floats(num_queries, shape.head_dim)));
  for (int64_t kv_head = 0; kv_head < shape.num_kv_heads; ++kv_head) {
    const int64_t first = kv_head * group * shape.head_dim;
    const AttentionTile tile{.views = views.data(),
                             .block_table = blocks.data(),
                             .queries = queries.data() + first,
                             .out = run.out.data() + first,
                             // The widest heads have ALiBi's slopes, biases by key and sinks.
                             .slopes = shape.head_dim > 128 ? slopes.data() + kv_head * group : nullptr,
                             .key_biases = shape.head_dim > 128 ? biases.data() + kv_head * group : nullptr,
                             .sinks = shape.head_dim > 128 ? slopes.data() + kv_head * group : nullptr,
                             .num_rows = kRows,
                             .kv_head = kv_head};
    kernels.attend(shape, pool, tile, 0, scratch.data(), running.data());
    for (int64_t split = 1; split < 3; ++split) {
      kernels.attend(shape, pool, tile, split, scratch.data(), later.data());
      kernels.merge(num_queries, shape.head_dim, running.data(), later.data());
    }
    kernels.finish(shape, tile, running.data());
  }
  return run;
}

void test_attention(const std::vector<Kernels>& others, Digest& digest) {
  const AttentionShape shapes[] = {{6, 2, 64, 64, RotaryStyle::kHalves, 0.125f, 0, 0, 1e-5f, KvSource::kOwn},
                                   {3, 1, 20, 12, RotaryStyle::kPairs, 0.25f, 0, 2.0f, 1e-5f, KvSource::kOwn},
                                   {2, 2, 136, 136, RotaryStyle::kHalves, 0.1f, 0, 0, 1e-5f, KvSource::kOwn}};
  for (const AttentionShape& shape : shapes) {
    for (const CacheType type : {CacheType::kF16, CacheType::kF32, CacheType::kInt8}) {
      const AttentionRun expected = run_attention(portable::kAttentionKernels, shape, type);
      digest.add(expected.keys.data(), expected.keys.size());
      digest.add(expected.values.data(), expected.values.size());
      digest.add(expected.out.data(), expected.out.size() * sizeof(float));
      for (const Kernels& other : others) {
        const AttentionRun found = run_attention(other.attention, shape, type);
        if (found.keys != expected.keys || found.values != expected.values ||
            std::memcmp(found.out.data(), expected.out.data(), found.out.size() * sizeof(float)) != 0) {
          check::failed(__FILE__, __LINE__, instruction_set_name(other.set), ": attention of ", shape.head_dim,
                        " columns, cache type ", static_cast<int>(type), ", differs from portable");
        }
      }
    }
  }
}

}  // namespace

int main() {
  const std::vector<Kernels> others = other_kernels();
  Digest digest;
  test_linear(others, digest);
  test_refined(others, digest);
  test_attention(others, digest);
  std::printf("digest %016llx; compared:", static_cast<unsigned long long>(digest.value));
  for (const Kernels& other : others) std::printf(" %s", instruction_set_name(other.set));
  std::printf("\n");
  return check::result();
}
