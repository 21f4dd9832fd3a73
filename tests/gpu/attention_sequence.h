// A sequence of tokens with their projections and a cache, whose passes run on the GPU and, for comparison, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "gpu_test.h"

namespace pilotfish::cuda::test {

inline constexpr int kBlockSize = 32;
inline int failures = 0;

struct Case {
  const char* name;
  AttentionShape shape;
  int num_tokens;  // of the whole sequence
  bool with_norms = false;
  CacheType cache = CacheType::kF16;
  bool with_slopes = false;   // ALiBi
  bool shares_cache = false;  // the passes' keys and values come from a layer of their own, before this one
  bool with_biases = false;   // by key
  bool with_sinks = false;
  bool norms_values = false;

  size_t cache_bytes(int num_blocks) const {
    return num_blocks * kBlockSize * shape.num_kv_heads * cache_row_bytes(cache, shape.head_dim);
  }
};

/// As a cache of int8 keeps a head. What f16 loses is left to the tolerance, as it was.
inline void quantise(CacheType type, std::vector<double>& head) {
  if (!has_scales(type)) return;
  double most = 0;
  for (const double value : head) most = std::max(most, std::fabs(value));
  const double largest = kLargestElement;
  const double scale = __half2float(__float2half(static_cast<float>(most / largest)));
  for (double& value : head) value = scale * std::nearbyint(std::clamp(value / scale, -largest, largest));
}

/// Rows of one of the sequences of a pass: tokens `ids` (rows of qkv) after `context` committed ones; masks empty:
/// causal.
struct Part {
  int table = 0;  // the sequence's block table
  int context;
  std::vector<int> ids;
  std::vector<int32_t> positions;
  std::vector<uint64_t> masks;
};

/// What the launcher is told of several sequences: nothing, or their longest, with rows of nobody behind them.
struct Told {
  bool longest = false;
  int num_padding = 0;
};

/// Tokens with their projections, and a cache that passes write and read, with the block tables of num_tables
/// sequences.
class Sequence {
 public:
  Sequence(const Case& c, uint64_t seed, int num_tables = 1)
      : case_(c),
        max_blocks_((c.num_tokens + 80) / kBlockSize + 2),
        width_((c.shape.num_heads + 2 * c.shape.num_kv_heads) * c.shape.head_dim),
        qkv_(random_floats(static_cast<size_t>(c.num_tokens) * width_, seed)),
        norms_{random_floats(c.shape.head_dim, seed + 1), random_floats(c.shape.head_dim, seed + 2)},
        qkv_device_(qkv_),
        q_norm_(norms_[0]),
        k_norm_(norms_[1]),
        cos_(angles(true)),
        sin_(angles(false)),
        cos_device_(cos_),
        sin_device_(sin_),
        table_(shuffled(max_blocks_ * num_tables, seed)),
        keys_(c.cache_bytes(max_blocks_ * num_tables)),
        values_(keys_.size()),
        slopes_(slopes()),
        slopes_device_(slopes_),
        biases_(random_floats(static_cast<size_t>(c.num_tokens + 80) * c.shape.num_heads, seed + 3)),
        biases_device_(biases_),
        queries_(static_cast<size_t>(c.num_tokens) * c.shape.num_heads * c.shape.head_dim),
        partials_(attention_partial_bytes(c.shape, 64, max_blocks_, kBlockSize) / sizeof(float)) {
    CUDA_CHECK(read_device_limits(&limits_));
  }

  size_t row_floats() const { return static_cast<size_t>(case_.shape.num_heads) * case_.shape.head_dim; }

  std::vector<float> pass(int context, const std::vector<int>& ids, const std::vector<int32_t>& positions,
                          const std::vector<uint64_t>& masks) {
    return pass({{0, context, ids, positions, masks}});
  }

  /// Several sequences have masks all or none.
  std::vector<float> pass(const std::vector<Part>& parts, const Told& told = {}) {
    std::vector<float> packed;
    std::vector<int32_t> positions, starts{0}, contexts, tables;
    std::vector<uint64_t> masks;
    for (const Part& part : parts) {
      for (const int id : part.ids)
        packed.insert(packed.end(), &qkv_[size_t(id) * width_], &qkv_[size_t(id) * width_] + width_);
      positions.insert(positions.end(), part.positions.begin(), part.positions.end());
      masks.insert(masks.end(), part.masks.begin(), part.masks.end());
      starts.push_back(starts.back() + static_cast<int32_t>(part.ids.size()));
      contexts.push_back(part.context);
      const auto table = table_.begin() + part.table * max_blocks_;
      tables.insert(tables.end(), table, table + max_blocks_);
    }
    const int num_used = starts.back(), rows = num_used + told.num_padding;
    int longest = 0;
    for (const Part& part : parts) longest = std::max(longest, static_cast<int>(part.ids.size()));
    packed.resize(size_t(rows) * width_, std::numeric_limits<float>::quiet_NaN());
    positions.resize(rows);
    if (!masks.empty()) masks.resize(rows, 1);
    const DeviceArray<float> qkv(packed), out(rows * row_floats());
    const DeviceArray<__half> halves(out.size());
    const DeviceArray<int32_t> position_ids(positions), lengths(contexts), seq_starts(starts), block_table(tables);
    const DeviceArray<uint64_t> mask(masks);
    PagedAttention a = {};
    a.shape = case_.shape;
    a.num_rows = rows;
    a.num_seqs = static_cast<int>(parts.size());
    a.most_sequence_rows = told.longest ? longest : 0;
    a.seq_starts = seq_starts.get();
    a.max_blocks = max_blocks_;
    a.block_size = kBlockSize;
    a.cache_type = case_.cache;
    a.qkv = qkv.get();
    a.position_ids = position_ids.get();
    a.context_lens = lengths.get();
    a.block_table = block_table.get();
    a.tree_mask = masks.empty() ? nullptr : mask.get();
    a.cos = cos_device_.get();
    a.sin = sin_device_.get();
    a.q_norm = case_.with_norms ? q_norm_.get() : nullptr;
    a.k_norm = case_.with_norms ? k_norm_.get() : nullptr;
    a.key_cache = keys_.get();
    a.value_cache = values_.get();
    a.queries = queries_.get();
    a.partials = partials_.get();
    a.out = out.get();
    a.halves_out = halves.get();
    a.num_sms = limits_.num_sms;
    a.slopes = case_.with_slopes ? slopes_device_.get() : nullptr;
    a.key_biases = case_.with_biases ? biases_device_.get() : nullptr;
    a.sinks = case_.with_sinks ? biases_device_.get() : nullptr;
    a.v_norm = case_.norms_values ? k_norm_.get() : nullptr;
    const DeviceArray<float> queries(queries_of(packed));
    if (case_.shares_cache) {
      CUDA_CHECK(launch_paged_attention(a, nullptr));
      a.shape.shares_cache = true;
      a.qkv = queries.get();
      a.k_norm = a.v_norm = nullptr;
    }
    CUDA_CHECK(launch_paged_attention(a, nullptr));
    CUDA_CHECK(cudaDeviceSynchronize());
    std::vector<float> result = out.read();
    result.resize(num_used * row_floats());
    const std::vector<__half> copy = halves.read();
    for (size_t i = 0; i < result.size(); ++i) {
      if (__half2float(copy[i]) == __half2float(__float2half(result[i]))) continue;
      std::printf("FAILED %s: f16 copy differs at %zu of %zu: %g, %g\n", case_.name, i, result.size(), result[i],
                  __half2float(copy[i]));
      ++failures;
      break;
    }
    return result;
  }

  std::vector<float> chain(int context, int rows) {
    std::vector<int> ids(rows);
    std::iota(ids.begin(), ids.end(), context);
    return pass(context, ids, {ids.begin(), ids.end()}, {});
  }

  /// Token `id` in double, after tokens path[0..]; path ends with id.
  std::vector<double> oracle(const std::vector<int>& path) const {
    const AttentionShape& s = case_.shape;
    const int last = static_cast<int>(path.size()) - 1, group = s.num_heads / s.num_kv_heads;
    const int first = s.sliding_window ? std::max(0, last - s.sliding_window + 1) : 0;
    std::vector<double> out(row_floats());
    parallel_for(s.num_heads, [&](int head) {
      const std::vector<double> query = prepared(path[last], head, last, true);
      std::vector<double> scores;
      for (int i = first; i <= last; ++i) {
        std::vector<double> key = prepared(path[i], s.num_heads + head / group, i, false);
        quantise(case_.cache, key);
        double score = std::inner_product(query.begin(), query.end(), key.begin(), 0.0) * s.scale;
        if (s.softcap) score = s.softcap * std::tanh(score / s.softcap);
        if (case_.with_slopes) score -= static_cast<double>(slopes_[head]) * (last - i);
        if (case_.with_biases) score += biases_[static_cast<size_t>(i) * s.num_heads + head];
        scores.push_back(score);
      }
      const double maximum = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - maximum);
      if (case_.with_sinks) sum += std::exp(biases_[head] - maximum);
      for (int i = first; i <= last; ++i) {
        const float* source = head_of(path[i], s.num_heads + s.num_kv_heads + head / group);
        std::vector<double> value(source, source + s.head_dim);
        if (case_.norms_values) normalise(value, norms_[1]);
        quantise(case_.cache, value);
        for (int d = 0; d < s.head_dim; ++d) out[head * s.head_dim + d] += scores[i - first] / sum * value[d];
      }
    });
    return out;
  }

 private:
  static std::vector<int32_t> shuffled(int count, uint64_t seed) {
    std::vector<int32_t> table(count);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937_64(seed));
    return table;
  }
  std::vector<float> slopes() const {
    std::vector<float> values;
    for (int head = 0; head < case_.shape.num_heads; ++head) {
      values.push_back(std::exp2(-8.0f * (head + 1) / case_.shape.num_heads));
    }
    return values;
  }
  /// The rows without their keys and values.
  std::vector<float> queries_of(const std::vector<float>& rows) const {
    std::vector<float> queries;
    for (size_t row = 0; row < rows.size(); row += width_) {
      queries.insert(queries.end(), rows.begin() + row, rows.begin() + row + row_floats());
    }
    return queries;
  }
  std::vector<float> angles(bool cosine) const {
    std::vector<float> table;
    const int half = case_.shape.rotary_dim / 2;
    for (int position = 0; position < case_.num_tokens + 80; ++position) {
      for (int i = 0; i < half; ++i) {
        const double angle = position * std::pow(10000.0, -static_cast<double>(i) / half);
        table.push_back(static_cast<float>(cosine ? std::cos(angle) : std::sin(angle)));
      }
    }
    return table;
  }
  const float* head_of(int token, int index) const {
    return &qkv_[static_cast<size_t>(token) * width_ + index * case_.shape.head_dim];
  }
  void normalise(std::vector<double>& head, const std::vector<float>& weight) const {
    const AttentionShape& s = case_.shape;
    const double squares = std::inner_product(head.begin(), head.end(), head.begin(), 0.0);
    for (int d = 0; d < s.head_dim; ++d) head[d] *= weight[d] / std::sqrt(squares / s.head_dim + s.norm_epsilon);
  }
  std::vector<double> prepared(int token, int index, int position, bool is_query) const {
    const AttentionShape& s = case_.shape;
    const float* source = head_of(token, index);
    std::vector<double> head(source, source + s.head_dim);
    if (case_.with_norms) normalise(head, norms_[is_query ? 0 : 1]);
    const int half = s.rotary_dim / 2;
    for (int i = 0; i < half; ++i) {
      double& a = head[s.is_interleaved ? 2 * i : i];
      double& b = head[s.is_interleaved ? 2 * i + 1 : half + i];
      const double c = cos_[static_cast<size_t>(position) * half + i],
                   sn = sin_[static_cast<size_t>(position) * half + i];
      const double rotated = a * c - b * sn;
      b = b * c + a * sn;
      a = rotated;
    }
    return head;
  }

  Case case_;
  int max_blocks_;
  int width_;
  std::vector<float> qkv_;
  std::vector<float> norms_[2];
  DeviceArray<float> qkv_device_, q_norm_, k_norm_;
  std::vector<float> cos_, sin_;
  DeviceArray<float> cos_device_, sin_device_;
  std::vector<int32_t> table_;
  DeviceArray<uint8_t> keys_, values_;
  std::vector<float> slopes_;
  DeviceArray<float> slopes_device_;
  std::vector<float> biases_;  // [position, head]; those of the first position are sinks, too
  DeviceArray<float> biases_device_;
  DeviceArray<__half> queries_;
  DeviceArray<float> partials_;
  DeviceLimits limits_;
};

}  // namespace pilotfish::cuda::test
