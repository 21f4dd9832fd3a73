// One model of the bundle: weights, cache pages and a session whose inputs and outputs are bound to buffers of its own.
// Knows one pass; what a pass is for is the business of prefill, draft and verify.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/manifest.h"
#include "device/cuda_device.h"
#include "memory/kv_cache.h"
#include "memory/pages.h"
#include "model/hidden_rows.h"
#include "model/ort.h"
#include "model/pass_buffers.h"

namespace pilotfish {

// Logits of the asked rows of a pass, valid until the model's next pass.
struct Logits {
  const float* data;  // [num_rows, width]
  int32_t num_rows;
  int32_t width;
  bool is_one_row = false;                    // `data` is one row, which stands for all
  std::span<const LikelyRow> likeliest = {};  // [num_rows] in place of `data`, where nothing else was asked for

  std::span<const float> row(int32_t index) const {
    return {data + (is_one_row ? 0 : size_t(index) * width), size_t(width)};
  }
};

struct Pass {
  std::span<const int32_t> ids;          // [num_rows]
  std::span<const int32_t> positions;    // [num_rows]; empty: context, context + 1, ...
  std::span<const uint64_t> tree_mask;   // [num_rows]; empty: causal
  std::span<const int32_t> block_table;  // covers context + num_rows tokens
  int32_t context;                       // tokens in the cache before this pass
  int32_t num_outputs;                   // the last rows, whose logits are wanted
  int32_t num_hidden = 0;                // the last rows, whose residual streams are wanted
};

struct ModelLimits {
  int32_t num_threads;
  int32_t max_rows;
  int32_t max_outputs;
  int32_t max_hidden;  // 0: the streams that the graph could give out are not bound
  int32_t max_context;
  int32_t num_blocks;
  int32_t block_size;
};

class Model {
 public:
  // Reads and hashes the weights, builds the session and runs a pass through it. The model keeps `ort` alive, beside
  // the other models. `device` is nullptr on the CPU.
  Model(std::shared_ptr<const Ort> ort, std::shared_ptr<CudaDevice> device, const std::filesystem::path& folder,
        const ModelEntry& entry, const ModelLimits& limits);
  Model(Model&&) = delete;

  int32_t num_logits() const noexcept { return num_logits_; }
  // The token of each logit, ascending; empty: logit j is about token j.
  std::span<const int32_t> logit_ids() const noexcept { return logit_ids_; }
  int32_t max_positions() const noexcept { return max_positions_; }
  const ModelLimits& limits() const noexcept { return limits_; }

  // Writes the rows' keys and values into the cache and returns the logits of the last num_outputs rows.
  Logits forward(const Pass& pass);
  // Residual streams of the last num_hidden rows of the last pass, which must have asked for some.
  Hidden hidden() const noexcept { return hidden_->view(); }

  KvCache& cache() noexcept { return *cache_; }
  // A stored tensor by its name in the manifest, which must be there. Not on a device, whose operators have copies.
  const OrtValue* stored(std::string_view name) const { return initializers_.find(name)->second.get(); }

  // What follows is for rounds on a device, which enqueue passes whose inputs kernels before them write.
  PassInputs device_inputs() const noexcept;
  const float* device_logits() const noexcept { return static_cast<const float*>(buffers_.bound_logits()); }
  // Sets the inputs of a pass in host memory; upload() enqueues their copy to the device.
  void set_inputs(const Pass& pass);
  void upload() const { buffers_.upload(); }
  // forward() without waiting, whose logits stay there.
  void start(const Pass& pass);
  // forward() so many times, one after the other, whose logits stay there; then waits for the device.
  void forward_on_device(const Pass& pass, int32_t num_times);
  // Enqueues a pass over the inputs on the device: a causal one, or one whose rows see what the tree mask says. Its
  // outputs' logits go to row first_output and on.
  enum class Sees { kCausal, kTreeMask };
  void enqueue(int32_t num_rows, int32_t num_outputs, int32_t first_output, Sees sees = Sees::kCausal);

 private:
  // Small inputs of one shape, made when the shape is first seen.
  struct RowTensors {
    OrtValuePtr ids, positions, tree_mask;
  };
  struct OutputTensors {
    OrtValuePtr rows, logits;
  };

  void load_session(const std::filesystem::path& folder, const ModelEntry& entry);
  void try_pass(int32_t num_rows);
  OrtValuePtr initializer(const TensorEntry& entry);
  // Runs the session over what is bound; on a device without waiting, from a recorded graph where the shape was seen.
  void run(int32_t num_rows, bool causal, int32_t num_outputs);
  void run_session();
  void bind_fixed_inputs();
  void bind_rows(int32_t num_rows, bool causal);
  void bind_outputs(int32_t num_outputs, int32_t first_output = 0);
  void bind_input(const char* name, const OrtValue* value);
  OrtValuePtr tensor(void* data, size_t num_bytes, std::span<const int64_t> shape, ONNXTensorElementDataType type);
  OrtValuePtr ints(std::span<int32_t> data, std::span<const int64_t> shape);

  // A pass of few rows that was recorded on the device.
  struct RecordedPass {
    int32_t num_rows, num_outputs;
    bool causal;
    std::unique_ptr<CudaGraph> graph;
  };

  std::shared_ptr<const Ort> ort_;
  std::shared_ptr<CudaDevice> device_;
  const ModelLimits limits_;
  const int32_t num_logits_;
  const std::vector<int32_t> logit_ids_;
  const int32_t max_positions_;
  std::optional<Pages> weights_;            // not kept on a device, whose operators have copies
  std::vector<CudaMemory> device_tensors_;  // f32 initializers
  std::unique_ptr<CudaOperators> operators_;
  OrtRunOptionsPtr run_options_;
  std::map<std::string, OrtValuePtr, std::less<>> initializers_;  // by name

  PassBuffers buffers_;
  std::optional<HiddenRows> hidden_;
  std::vector<OrtValuePtr> fixed_inputs_;
  std::vector<RowTensors> row_tensors_;        // [max_rows + 1]
  std::vector<OutputTensors> output_tensors_;  // [max_outputs + 1]
  std::vector<OrtValuePtr> later_logits_;      // of one output, by its row
  int32_t bound_rows_ = -1;
  int32_t bound_outputs_ = -1;
  int32_t bound_first_output_ = 0;
  bool bound_causal_ = false;

  OrtSessionPtr session_;
  OrtIoBindingPtr binding_;
  std::optional<KvCache> cache_;
  std::vector<RecordedPass> recorded_;
};

}  // namespace pilotfish
