// Where the time of a pass goes: all layers of our kernels in one captured graph, with some of them left out (wrong
// results, right bounds); a step has the embedding, the output head and the choice of a token besides.
// Usage: layer_bench [7b | draft] [all]
#include <algorithm>
#include <cstring>
#include <memory>

#include "gpu_test.h"
#include "graph_timer.h"
#include "lowbit_format.cuh"
#include "round_test.h"

namespace pilotfish::cuda::test {
namespace {

constexpr int kHeadDim = 128, kBlockSize = 32, kMaxBlocks = 96, kVocabulary = 32000, kWarmReplays = 5, kReplays = 40;

struct Sizes {
  const char* name;
  int layers, hidden, inner, heads;
};
constexpr Sizes k7b = {"7b", 32, 4096, 11008, 32}, kDraft = {"draft", 22, 1536, 4096, 12};

/// Random bits that are finite as f16 and as f32.
__global__ void fill_kernel(uint32_t* words, size_t count, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + seed;
    x ^= x >> 16;
    x *= 0x85ebca6b;
    x ^= x >> 13;
    words[i] = x & 0x1FFF1FFF;
  }
}

template <class T>
DeviceArray<T> filled(size_t size) {
  DeviceArray<T> array(size);
  fill_kernel<<<1024, 256>>>(reinterpret_cast<uint32_t*>(array.get()), array.bytes() / 4, 1);
  CUDA_CHECK(cudaDeviceSynchronize());
  return array;
}

enum Part {
  kNorms = 1,
  kAttention = 2,
  kQkv = 4,
  kO = 8,
  kGateUp = 16,
  kDown = 32,
  kAll = 63,
  kRing = 64,
  kKeep = 128,
  kEmbedding = 256,
  kHead = 512,
  kChoice = 1024,
  kEnds = kEmbedding | kHead | kChoice
};

class Model {
 public:
  explicit Model(const Sizes& sizes) : sizes_(sizes) {
    CUDA_CHECK(read_device_limits(&limits_));
    const LowbitShape shapes[] = {qkv_, o_, gate_up_, down_};
    for (int layer = 0; layer < sizes_.layers; ++layer) {
      for (const LowbitShape& shape : shapes) weights_.push_back(filled<uint8_t>(lowbit_weight_bytes(shape)));
      caches_.push_back(filled<__half>(size_t{kMaxBlocks} * kBlockSize * sizes_.hidden));
      caches_.push_back(filled<__half>(size_t{kMaxBlocks} * kBlockSize * sizes_.hidden));
    }
    std::vector<int32_t> table(kMaxBlocks);
    for (int i = 0; i < kMaxBlocks; ++i) table[i] = i;
    CUDA_CHECK(cudaMemcpy(table_.get(), table.data(), table_.bytes(), cudaMemcpyHostToDevice));
    ids_.clear();
  }

  void set(int context) const {
    const std::vector<int32_t> contexts = {context};
    std::vector<int32_t> positions(64);
    for (int i = 0; i < 64; ++i) positions[i] = context + i;
    CUDA_CHECK(cudaMemcpy(contexts_.get(), contexts.data(), contexts_.bytes(), cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(positions_.get(), positions.data(), positions_.bytes(), cudaMemcpyHostToDevice));
  }

  void enqueue(int rows, int parts, cudaStream_t stream) const {
    if (parts & kEmbedding) {
      CUDA_CHECK(launch_embedding(head_, head_weight_.get(), ids_.get(), rows, 1, x_.get(),
                                  {halves_.get(), norm_.get(), squares_.get()}, stream));
    }
    for (int layer = 0; layer < sizes_.layers; ++layer) {
      if (parts & kQkv) linear(qkv_, layer * 4, rows, parts, stream);
      attention(layer, rows, parts, stream);
      if (parts & kO) linear(o_, layer * 4 + 1, rows, parts, stream);
      if (parts & kGateUp) linear(gate_up_, layer * 4 + 2, rows, parts, stream);
      if (parts & kDown) linear(down_, layer * 4 + 3, rows, parts, stream);
    }
    if (parts & kHead) head(rows, stream);
    if (parts & kChoice) choose(rows, stream);
  }

 private:
  LowbitPlan plan(const LowbitShape& shape, int parts) const {
    if (parts & kRing) return {std::min(limits_.num_sms, unit_grid(shape).num_units())};
    return plan_lowbit_linear(shape, limits_);
  }
  int copy_stride(const LowbitShape& shape, int rows, int parts) const {
    return leaves_copies(shape, plan(shape, parts), rows) ? kMostCopiedRows * sizes_.hidden : 0;
  }
  /// qkv and gate_up read a copy with a norm, o and down write one.
  void linear(const LowbitShape& shape, int index, int rows, int parts, cudaStream_t stream) const {
    const bool reads_norm = index % 2 == 0, is_gated = index % 4 == 2;
    LowbitLinear linear = {};
    linear.shape = shape;
    linear.plan = plan(shape, parts);
    linear.weights = weights_[index].get();
    linear.x = reads_norm ? halves_.get() : companion_.get();
    linear.residual = reads_norm ? nullptr : x_.get();
    linear.out = reads_norm ? wide_.get() : x_.get();
    linear.output_type = OutputType::kF32;
    linear.activation = is_gated ? Activation::kSwiGlu : Activation::kNone;
    linear.num_rows = rows;
    linear.turn = index % 2 == 0 ? Turn::kFirst : Turn::kSecond;
    linear.passes = parts & kKeep ? Passes::kIntoCache : Passes::kThroughCache;
    if (is_gated) linear.next.halves = companion_.get();
    if (parts & kNorms && reads_norm) linear.input_norm = {squares_.get(), 1e-5f, 1};
    if (reads_norm) linear.x_copy_stride = copy_stride(index % 4 == 0 ? down_ : o_, rows, parts);
    if (parts & kNorms && !reads_norm) {
      linear.next = {halves_.get(), norm_.get(), squares_.get(), copy_stride(shape, rows, parts)};
    }
    linear.partials = partials_.get();
    CUDA_CHECK(launch_lowbit_linear(linear, limits_, stream));
  }
  /// As in a pass, where the rows that it reads are gathered: their norm is a kernel of its own.
  void head(int rows, cudaStream_t stream) const {
    CUDA_CHECK(launch_rms_norm(x_.get(), norm_.get(), 1e-5f, rows, sizes_.hidden, halves_.get(), stream));
    LowbitLinear linear = {};
    linear.shape = head_;
    linear.plan = plan_lowbit_linear(head_, limits_);
    linear.weights = head_weight_.get();
    linear.x = halves_.get();
    linear.out = logits_.get();
    linear.output_type = OutputType::kF32;
    linear.num_rows = rows;
    linear.passes = Passes::kThroughCache;
    linear.partials = partials_.get();
    CUDA_CHECK(launch_lowbit_linear(linear, limits_, stream));
  }
  void choose(int rows, cudaStream_t stream) const {
    const LogitRows logits = {logits_.get(), rows, kVocabulary, kVocabulary};
    if (rows == 1) {
      CUDA_CHECK(launch_choose_likeliest(DraftStep{.rows = logits,
                                                   .logit_ids = nullptr,
                                                   .step = 0,
                                                   .next = round_.inputs(),
                                                   .target_ids = round_.target_ids()},
                                         round_.memory(), stream));
    } else {
      CUDA_CHECK(launch_choose_likeliest(TargetChoice{.rows = logits, .target_ids = round_.target_ids()},
                                         round_.memory(), stream));
    }
  }
  void attention(int layer, int rows, int parts, cudaStream_t stream) const {
    PagedAttention a = {};
    a.shape = {sizes_.heads, sizes_.heads, kHeadDim, kHeadDim, false, 0.088f, 0, 0, 0};
    a.num_rows = rows;
    a.max_blocks = kMaxBlocks;
    a.block_size = kBlockSize;
    a.qkv = wide_.get();
    a.position_ids = positions_.get();
    a.context_lens = contexts_.get();
    a.block_table = table_.get();
    a.cos = angles_.get();
    a.sin = angles_.get();
    a.key_cache = caches_[2 * layer].get();
    a.value_cache = caches_[2 * layer + 1].get();
    a.queries = queries_.get();
    a.partials = splits_.get();
    a.out = attended_.get();
    a.halves_out = companion_.get();
    a.num_sms = limits_.num_sms;
    if (parts & kAttention) CUDA_CHECK(launch_paged_attention(a, stream));
  }

  const Sizes sizes_;
  DeviceLimits limits_;
  LowbitShape qkv_{WeightFormat::kInt4, sizes_.hidden, 3 * sizes_.hidden},
      o_{WeightFormat::kInt4, sizes_.hidden, sizes_.hidden},
      gate_up_{WeightFormat::kInt4, sizes_.hidden, 2 * sizes_.inner},
      down_{WeightFormat::kInt4, sizes_.inner, sizes_.hidden}, head_{WeightFormat::kInt8, sizes_.hidden, kVocabulary};
  std::vector<DeviceArray<uint8_t>> weights_;
  std::vector<DeviceArray<__half>> caches_;
  DeviceArray<float> x_ = filled<float>(64 * sizes_.hidden), wide_ = filled<float>(64 * 2 * sizes_.inner),
                     norm_ = filled<float>(sizes_.hidden), attended_ = filled<float>(64 * sizes_.hidden),
                     angles_ = filled<float>(kMaxBlocks * kBlockSize * kHeadDim / 2);
  DeviceArray<__half> halves_ = filled<__half>(64 * sizes_.inner), companion_ = filled<__half>(64 * sizes_.inner),
                      queries_ = filled<__half>(64 * sizes_.hidden);
  DeviceArray<float> squares_ = filled<float>(64 * num_square_parts(sizes_.hidden));
  DeviceArray<float> partials_{size_t{132} * 3 * 8 * 32 * 64};
  DeviceArray<float> splits_{attention_partial_bytes({sizes_.heads, sizes_.heads, kHeadDim, 0, false, 0, 0, 0, 0}, 64,
                                                     kMaxBlocks, kBlockSize) /
                             4};
  DeviceArray<uint8_t> head_weight_ = filled<uint8_t>(lowbit_weight_bytes(head_));
  DeviceArray<float> logits_ = filled<float>(size_t{64} * kVocabulary);
  DeviceArray<int32_t> table_{kMaxBlocks}, contexts_{1}, positions_{64}, ids_{64};
  Rounds round_{{settings_of(1, 0, 1, 0, 1)}, kVocabulary};
};

double time_model(const Model& model, int rows, int context, int parts) {
  model.set(context);
  return time_graph([&](cudaStream_t stream) { model.enqueue(rows, parts, stream); }, kWarmReplays, kReplays);
}

struct Variant {
  const char* name;
  int parts;
};
constexpr Variant kBrief[] = {{"step", kAll | kEnds}, {"all", kAll}, {"linears, norms", kAll & ~kAttention}};
constexpr Variant kParts[] = {{"step without choice", kAll | kEmbedding | kHead},
                              {"all and embedding", kAll | kEmbedding},
                              {"head alone", kHead},
                              {"head and choice", kHead | kChoice},
                              {"all, weights kept in L2", kAll | kKeep},
                              {"all, none resident", kAll | kRing},
                              {"no norms", kAll & ~kNorms},
                              {"linears alone", kQkv | kO | kGateUp | kDown},
                              {"linears, none resident", kQkv | kO | kGateUp | kDown | kRing},
                              {"qkv alone", kQkv},
                              {"o alone", kO},
                              {"o alone, not resident", kO | kRing},
                              {"gate_up alone", kGateUp},
                              {"down alone", kDown},
                              {"attention alone", kAttention}};

void print_times(const Model& model, std::span<const Variant> variants) {
  for (const Variant& variant : variants) {
    std::printf("%-24s", variant.name);
    for (const auto& [rows, context] : {std::pair{1, 64}, {1, 2048}, {8, 64}, {16, 64}, {64, 64}}) {
      std::printf(" %10.4f", time_model(model, rows, context, variant.parts));
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace pilotfish::cuda::test

int main(int argc, char** argv) {
  using namespace pilotfish::cuda::test;
  const Sizes& sizes = argc > 1 && std::strcmp(argv[1], kDraft.name) == 0 ? kDraft : k7b;
  const Model model(sizes);
  std::printf("%-24s %10s %10s %10s %10s %10s  ms of the %d layers of %s\n", "rows, context", "1, 64", "1, 2048",
              "8, 64", "16, 64", "64, 64", sizes.layers, sizes.name);
  print_times(model, kBrief);
  if (argc > 2 && std::strcmp(argv[2], "all") == 0) print_times(model, kParts);
}
