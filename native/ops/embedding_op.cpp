// The operator Embedding of GRAPH.md.
#include <array>
#include <memory>

#include "embedding.h"
#include "kernel_io.h"
#include "operator.h"
#include "operators.h"
#include "packed_weights.h"

namespace pilotfish {
namespace {

enum Input : size_t { kInputIds, kWeight };

constexpr int64_t kMaxRows = int64_t{1} << 30;
constexpr int64_t kMaxColumns = int64_t{1} << 24;

class EmbeddingOp {
 public:
  static constexpr const char* kName = "Embedding";
  static constexpr std::array<InputSpec, 2> kInputs = {
      {{ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32}, {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8}}};

  explicit EmbeddingOp(const KernelInfo& info)
      : format_(parse_weight_format(info.text("format"))),
        num_rows_(info.integer("num_rows", 1, kMaxRows)),
        num_columns_(info.integer("num_columns", 1, kMaxColumns)),
        scale_(info.real_or("scale", 1.0f)) {}
  void compute(const KernelContext& context) const {
    const Tensor ids = context.input(kInputIds), weight = context.input(kWeight);
    require_shape("input_ids", ids, {-1});
    const auto num_bytes = packed_bytes(format_, num_rows_, num_columns_);
    require_shape("weight", weight, {static_cast<int64_t>(num_bytes)});
    const int64_t num_tokens = ids.dims[0];
    const auto id = ids.as<const int32_t>();
    for (int64_t token = 0; token < num_tokens; ++token) {
      require(id[token] >= 0 && id[token] < num_rows_, Element{"input_ids", token, id[token]}, ", not in 0..",
              num_rows_ - 1);
    }
    float* const out = context.output(0, {num_tokens, num_columns_});
    const auto packed = weight.as<const std::byte>();
    context.parallel().run(num_tokens, [&](int64_t token) {
      unpack_row(format_, packed, num_columns_, id[token], scale_, out + token * num_columns_);
    });
  }

 private:
  WeightFormat format_;
  int64_t num_rows_;
  int64_t num_columns_;
  float scale_;
};

}  // namespace

OperatorPtr embedding_op(int32_t num_threads) { return std::make_shared<Operator<EmbeddingOp>>(num_threads); }

}  // namespace pilotfish
