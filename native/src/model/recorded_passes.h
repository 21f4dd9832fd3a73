// Recordings of a session's passes on a device, one a shape: only shapes that occur often have one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/cuda_device.h"

namespace pilotfish {

// What decides which kernels a pass consists of, and over which memory.
struct PassShape {
  int32_t num_rows;
  int32_t num_outputs = 0;
  int32_t num_hidden = 0;
  bool is_causal = true;
  int32_t num_seqs = 1;
  int32_t sequence_rows = 0;  // that none of several sequences has more of; 0: it is not known

  bool operator==(const PassShape&) const = default;
};

// A recording takes as long as 3 launches of it save with a model of 1B and 27 with one of 7B, and the ends of prompts
// have more shapes than are kept. So a shape is recorded the fourth time, and takes another one's place only if that
// one did not occur meanwhile: of shapes that all occur in turn, some keep their recordings.
class RecordedPasses {
 public:
  using Enqueue = std::function<void()>;
  // Records what the function puts on the stream instead of running it.
  using Record = std::function<std::unique_ptr<CudaGraph>(const Enqueue&)>;

  explicit RecordedPasses(Record record) : record_(std::move(record)) {}

  // From its recording if the shape has or gets one, else as it is.
  void run(const PassShape& shape, const Enqueue& enqueue);

 private:
  struct Pass {
    PassShape shape;
    std::unique_ptr<CudaGraph> graph = nullptr;
    int32_t num_counted = 0;              // passes without a recording
    int64_t first_counted = 0, last = 0;  // in passes of the session
  };

  Pass& found(const PassShape& shape);
  // Whether the pass is to be recorded now. If all places are taken, the recording used longest ago is dropped for it.
  bool takes_place(Pass& pass);

  const Record record_;
  std::vector<Pass> passes_;
  int64_t now_ = 0;  // passes of the session
};

}  // namespace pilotfish
