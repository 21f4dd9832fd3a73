// Times attention alone for the shapes of a 7B target and a 0.72B draft: layers one after the other in one captured
// graph, each with a cache of its own, beside what reading the cache takes at least. Usage: attention_bench
// [--sequences | --plain]: those of several sequences alone, or those without tensor cores, by ALiBi's slopes, beside
// the same shapes with them.
#include <cmath>
#include <cstring>
#include <utility>

#include "attention_tile.cuh"
#include "gpu_test.h"
#include "graph_timer.h"

namespace pilotfish::cuda::test {
namespace {

constexpr int kHeadDim = 128, kBlockSize = 32, kMaxBlocks = 128, kWarmReplays = 3, kReplays = 15;

struct Model {
  const char* name;
  int num_heads;
  int num_layers;
};

/// What of an attention operator is timed.
enum class Part { kAll, kPrefillKernel };

class Layers {
 public:
  Layers(const Model& model, CacheType cache, int max_rows, bool has_slopes = false)
      : model_(model),
        cache_(cache),
        shape_{model.num_heads, model.num_heads, kHeadDim, kHeadDim, false, 0.088f, 0, 0, 0},
        qkv_(repeated(random_floats(size_t{64} * 3 * model.num_heads * kHeadDim, 5), max_rows / 64)),
        angles_(random_floats(size_t{kMaxBlocks} * kBlockSize * kHeadDim / 2, 6)),
        queries_(size_t(max_rows) * model.num_heads * kHeadDim),
        out_(size_t(max_rows) * model.num_heads * kHeadDim),
        halves_(out_.size()),
        partials_(attention_partial_bytes(shape_, max_rows, kMaxBlocks, kBlockSize) / sizeof(float)),
        slopes_(has_slopes ? random_floats(model.num_heads, 7) : std::vector<float>{}),
        table_(table()) {
    CUDA_CHECK(read_device_limits(&limits_));
    for (int i = 0; i < 2 * model.num_layers; ++i) pools_.emplace_back(kMaxBlocks * kBlockSize * row_bytes()).clear();
  }

  /// Microseconds a layer.
  double time(int rows, int context, bool is_tree, Part part = Part::kAll) const {
    std::vector<int32_t> positions(rows);
    std::vector<uint64_t> masks(rows);
    for (int i = 0; i < rows; ++i) positions[i] = context + i, masks[i] = ~uint64_t{0} >> (63 - i % 64);
    const DeviceArray<int32_t> position_ids(positions), contexts(std::vector<int32_t>{context});
    const DeviceArray<uint64_t> mask(masks);
    const auto enqueue = [&](cudaStream_t stream) {
      for (int layer = 0; layer < model_.num_layers; ++layer) {
        PagedAttention a = {};
        a.shape = shape_;
        a.num_rows = rows;
        a.max_blocks = kMaxBlocks;
        a.block_size = kBlockSize;
        a.cache_type = cache_;
        a.qkv = qkv_.get();
        a.position_ids = position_ids.get();
        a.context_lens = contexts.get();
        a.block_table = table_.get();
        a.tree_mask = is_tree ? mask.get() : nullptr;
        a.cos = angles_.get();
        a.sin = angles_.get();
        a.key_cache = pools_[2 * layer].get();
        a.value_cache = pools_[2 * layer + 1].get();
        a.queries = queries_.get();
        a.partials = partials_.get();
        a.out = out_.get();
        a.halves_out = halves_.get();
        a.num_sms = limits_.num_sms;
        a.slopes = slopes_.size() > 0 ? slopes_.get() : nullptr;
        CUDA_CHECK(part == Part::kAll ? launch_paged_attention(a, stream) : launch_prefill_attention(a, stream));
      }
    };
    return 1000 * time_graph(enqueue, kWarmReplays, kReplays) / model_.num_layers;
  }

  double cache_megabytes(int context) const { return 2e-6 * static_cast<double>(context * row_bytes()); }
  /// Of a causal pass without context.
  double tera_operations(int rows) const { return 4e-12 * kHeadDim * model_.num_heads * (0.5 * rows * (rows + 1.0)); }

 private:
  size_t row_bytes() const { return model_.num_heads * cache_row_bytes(cache_, kHeadDim); }
  static std::vector<int32_t> table() {
    std::vector<int32_t> table(kMaxBlocks);
    for (int i = 0; i < kMaxBlocks; ++i) table[i] = i;
    return table;
  }
  static std::vector<float> repeated(const std::vector<float>& values, int times) {
    std::vector<float> all;
    for (int i = 0; i < times; ++i) all.insert(all.end(), values.begin(), values.end());
    return all;
  }

  DeviceLimits limits_;
  Model model_;
  CacheType cache_;
  AttentionShape shape_;
  DeviceArray<float> qkv_, angles_;
  DeviceArray<__half> queries_;
  DeviceArray<float> out_;
  DeviceArray<__half> halves_;
  DeviceArray<float> partials_, slopes_;
  DeviceArray<int32_t> table_;
  std::vector<DeviceArray<uint8_t>> pools_;
};

/// Sequences with a cache of their own each, as in rounds that share a pass.
class Sequences {
 public:
  Sequences(const Model& model, int num_seqs, int rows_each)
      : model_(model),
        num_seqs_(num_seqs),
        rows_each_(rows_each),
        shape_{model.num_heads, model.num_heads, kHeadDim, kHeadDim, false, 0.088f, 0, 0, 0},
        qkv_(random_floats(size_t(num_rows()) * 3 * model.num_heads * kHeadDim, 5)),
        angles_(random_floats(size_t{kBlocks} * kBlockSize * kHeadDim / 2, 6)),
        queries_(size_t(num_rows()) * model.num_heads * kHeadDim),
        out_(queries_.size()),
        halves_(queries_.size()),
        partials_(attention_partial_bytes(shape_, num_rows(), kBlocks, kBlockSize) / sizeof(float)),
        table_(table(num_seqs * kBlocks)) {
    CUDA_CHECK(read_device_limits(&limits_));
    const size_t pool_bytes =
        size_t(num_seqs) * kBlocks * kBlockSize * model.num_heads * cache_row_bytes(CacheType::kF16, kHeadDim);
    for (int i = 0; i < 2 * model.num_layers; ++i) pools_.emplace_back(pool_bytes).clear();
  }

  /// Microseconds a layer. `is_told`: the launcher, how many rows each has.
  double time(int context, bool is_told) const {
    std::vector<int32_t> positions, starts{0};
    for (int s = 0; s < num_seqs_; ++s) {
      for (int row = 0; row < rows_each_; ++row) positions.push_back(context + row);
      starts.push_back(starts.back() + rows_each_);
    }
    const DeviceArray<int32_t> position_ids(positions), seq_starts(starts);
    const DeviceArray<int32_t> contexts(std::vector<int32_t>(num_seqs_, context));
    const auto enqueue = [&](cudaStream_t stream) {
      for (int layer = 0; layer < model_.num_layers; ++layer) {
        PagedAttention a = {};
        a.shape = shape_;
        a.num_rows = num_rows();
        a.num_seqs = num_seqs_;
        a.most_sequence_rows = is_told ? rows_each_ : 0;
        a.max_blocks = kBlocks;
        a.block_size = kBlockSize;
        a.cache_type = CacheType::kF16;
        a.qkv = qkv_.get();
        a.position_ids = position_ids.get();
        a.seq_starts = seq_starts.get();
        a.context_lens = contexts.get();
        a.block_table = table_.get();
        a.cos = angles_.get();
        a.sin = angles_.get();
        a.key_cache = pools_[2 * layer].get();
        a.value_cache = pools_[2 * layer + 1].get();
        a.queries = queries_.get();
        a.partials = partials_.get();
        a.out = out_.get();
        a.halves_out = halves_.get();
        a.num_sms = limits_.num_sms;
        CUDA_CHECK(launch_paged_attention(a, stream));
      }
    };
    return 1000 * time_graph(enqueue, kWarmReplays, kReplays) / model_.num_layers;
  }

 private:
  static constexpr int kBlocks = 32;  // of a sequence

  int num_rows() const { return num_seqs_ * rows_each_; }
  static std::vector<int32_t> table(int count) {
    std::vector<int32_t> table(count);
    for (int i = 0; i < count; ++i) table[i] = i;
    return table;
  }

  DeviceLimits limits_;
  Model model_;
  int num_seqs_, rows_each_;
  AttentionShape shape_;
  DeviceArray<float> qkv_, angles_;
  DeviceArray<__half> queries_;
  DeviceArray<float> out_;
  DeviceArray<__half> halves_;
  DeviceArray<float> partials_;
  DeviceArray<int32_t> table_;
  std::vector<DeviceArray<uint8_t>> pools_;
};

void print_sequences(const Model& model) {
  std::printf("%-6s f16   us a layer, sequences x rows, unknown and known to the launcher\n", model.name);
  constexpr std::pair<int, int> kKinds[] = {{1, 6}, {4, 1}, {4, 6}, {8, 1}, {8, 2}, {8, 6}, {16, 1}, {16, 4}};
  for (const auto& [num_seqs, rows_each] : kKinds) {
    const Sequences sequences(model, num_seqs, rows_each);
    std::printf("%2d x %d:", num_seqs, rows_each);
    for (const int context : {128, 200, 512}) {
      std::printf("   after %4d %8.2f %8.2f", context, sequences.time(context, false), sequences.time(context, true));
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

void print_few_rows(const Model& model, CacheType cache, bool has_slopes = false) {
  const Layers layers(model, cache, 64, has_slopes);
  std::printf("%-6s %-5s us a layer, rows: %8d %8d %8d %8d %8d %8d  tree of 8\n", model.name, name_of(cache), 1, 2, 4,
              8, 16, 64);
  for (const int context : {64, 512, 2048, 3900}) {
    std::printf("after %4d tokens, %6.2f MB:       ", context, layers.cache_megabytes(context));
    for (const int rows : {1, 2, 4, 8, 16, 64}) std::printf(" %8.2f", layers.time(rows, context, false));
    std::printf(" %8.2f\n", layers.time(8, context, true));
  }
  std::fflush(stdout);
}

void print_plain() {
  constexpr Model kPlain = {"plain", 32, 8}, kTiled = {"tiles", 32, 8};
  for (const CacheType cache : {CacheType::kF16, CacheType::kInt8}) {
    print_few_rows(kPlain, cache, true);
    print_few_rows(kTiled, cache);
  }
  for (const bool has_slopes : {true, false}) {
    const Layers layers({"", 32, 4}, CacheType::kF16, 512, has_slopes);
    std::printf("prompt of 512, %s: %.1f us a layer\n", has_slopes ? "plain" : "tiles", layers.time(512, 0, false));
  }
}

void print_prompts(const Model& model, CacheType cache) {
  const Layers layers(model, cache, 4096);
  for (const int rows : {512, 2048, 4096}) {
    const double all = layers.time(rows, 0, false), kernel = layers.time(rows, 0, false, Part::kPrefillKernel);
    std::printf("%-6s %-5s prompt of %4d: %8.1f us a layer, %8.1f without rotation and cache writes, %6.1f TFLOP/s\n",
                model.name, name_of(cache), rows, all, kernel, 1e6 * layers.tera_operations(rows) / kernel);
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace pilotfish::cuda::test

int main(int argc, char** argv) {
  using namespace pilotfish;
  using namespace pilotfish::cuda;
  using namespace pilotfish::cuda::test;
  if (argc > 1 && std::strcmp(argv[1], "--plain") == 0) {
    print_plain();
    return 0;
  }
  for (const Model& model : {Model{"7B", 32, 8}, Model{"0.72B", 12, 22}}) print_sequences(model);
  if (argc > 1 && std::strcmp(argv[1], "--sequences") == 0) return 0;
  constexpr CacheType kCaches[] = {CacheType::kF16, CacheType::kInt8};
  for (const CacheType cache : kCaches) print_prompts({"7B", 32, 4}, cache);
  for (const Model& model : {Model{"7B", 32, 16}, Model{"0.72B", 12, 22}}) {
    for (const CacheType cache : kCaches) print_few_rows(model, cache);
  }
  return 0;
}
