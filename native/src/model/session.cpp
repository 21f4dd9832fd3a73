#include "model/session.h"

#include "base/platform/text.h"
#include "device/chain_lengths.h"
#include "model/provider_kernels.h"

namespace pilotfish {

Session::Session(std::shared_ptr<const Ort> ort, std::shared_ptr<CudaDevice> device, const Graph& graph)
    : ort_(std::move(ort)),
      device_(std::move(device)),
      recorded_([this](const RecordedPasses::Enqueue& enqueue) { return device_->record(enqueue); }) {
  OrtSessionOptionsPtr options;
  if (device_) {
    check_provider_kernels(*ort_, *device_, graph.placed, graph.file);
    operators_ = device_->create_operators(ort_->api(), graph.limits, *graph.repacked);
    options = ort_->cuda_session_options(device_->index(), device_->stream(), operators_->domain());
    run_options_ = ort_->unsynchronised_run();
  } else {
    options = ort_->session_options(graph.num_threads);
  }
  for (const auto& [name, value] : graph.initializers) {
    ort_->check(ort_abi::AddInitializer(ort_->api(), options.get(), name.c_str(), value));
  }
  session_ = ort_->create_session(graph.placed, options.get());
  if (device_) graph.repacked->end_load();  // before caches and buffers take the room
  binding_ = ort_->create_binding(session_.get());
  ports_.emplace(*ort_, session_.get(), platform::text_of_path(graph.file));
  if (device_) ort_->check_cuda_placement(session_.get(), platform::text_of_path(graph.file.filename()));
}

OrtValuePtr Session::tensor(void* data, size_t num_bytes, std::span<const int64_t> shape,
                            ONNXTensorElementDataType type) const {
  return device_ ? ort_->cuda_tensor(device_->index(), data, num_bytes, shape, type)
                 : ort_->tensor(data, num_bytes, shape, type);
}

void Session::run() {
  ort_->check(ort_abi::RunWithBinding(ort_->api(), session_.get(), run_options_.get(), binding_.get()));
}

void Session::run(const PassShape& shape) {
  if (!device_ || shape.num_rows > kMostRecordedRows) return run();
  recorded_.run(shape, [this] { run(); });
}

}  // namespace pilotfish
