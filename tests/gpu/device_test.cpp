// A device: a CUDA call that fails is named with its file and line, and the device goes on, for any thread.
#include <cstdio>
#include <thread>
#include <vector>

#include "check.h"
#include "device/cuda_library.h"
#include "kernels.h"

namespace {

using pilotfish::CudaDevice;
using pilotfish::CudaMemory;

// Whether what goes there comes back.
bool works(const std::shared_ptr<CudaDevice>& device) {
  constexpr int kCount = 1000;
  std::vector<int> sent(kCount), found(kCount);
  for (int i = 0; i < kCount; ++i) sent[i] = 7 * i;
  const CudaMemory memory(device, sizeof(int) * kCount);
  const auto upload = [&] { device->upload(memory.data(), sent.data(), sizeof(int) * kCount); };
  upload();
  device->synchronize();
  const auto recorded = device->record([&] { device->download(found.data(), memory.data(), sizeof(int) * kCount); });
  recorded->launch();
  device->synchronize();
  return found == sent;
}

void test_a_failed_call_is_named(const std::shared_ptr<CudaDevice>& device) {
  const CudaMemory memory(device, 64);
  const auto narrow = [&] { device->copy(memory.data(), memory.data(), 1, 2, 2); };  // the pitch is below the width
  CHECK_ERROR(PF_CUDA_FAILED, "from cudaMemcpy2DAsync(target, pitch, ", narrow());
  CHECK_ERROR(PF_CUDA_FAILED, "at cuda_device.cpp:", narrow());
  CHECK(works(device));
}

void test_memory_that_is_not_there(const std::shared_ptr<CudaDevice>& device) {
  CHECK_ERROR(PF_OUT_OF_MEMORY, "refused 1125899906842624 bytes", device->allocate(size_t{1} << 50));
  CHECK(works(device));
}

void test_a_recording_that_fails(const std::shared_ptr<CudaDevice>& device) {
  CHECK_ERROR(PF_UNSUPPORTED, "inside", device->record([] { pilotfish::fail(PF_UNSUPPORTED, "inside"); }));
  CHECK(works(device));
}

void test_other_threads(const std::shared_ptr<CudaDevice>& device) {
  bool worked = false;
  std::thread([&] { worked = works(device); }).join();
  CHECK(worked);
}

void test_what_it_is(const std::shared_ptr<CudaDevice>& device) {
  const pilotfish::CudaDeviceInfo info = device->info();
  const double gigabytes = device->measure_read_bandwidth() / 1e9;
  std::printf("%s, compute capability %d, %d multiprocessors, %.1f GiB, reads %.0f GB/s\n", info.name.c_str(),
              info.compute_capability, info.num_sms, static_cast<double>(info.total_bytes) / (1 << 30), gigabytes);
  CHECK(info.compute_capability >= 80);
  CHECK(info.free_bytes <= info.total_bytes);
  CHECK(gigabytes > 50);
}

// The last test: a kernel that reads where nothing is ends the process's use of the GPU.
void test_a_fault_in_a_kernel(const std::shared_ptr<CudaDevice>& device) {
  const auto* const nowhere = reinterpret_cast<const void*>(16);
  const pilotfish::cuda::DeviceLimits limits{1, 0, 0, 0};
  pilotfish::cuda::launch_read(nowhere, 16, nullptr, limits, static_cast<cudaStream_t>(device->stream()));
  CHECK_ERROR(PF_CUDA_FAILED, "this process cannot use the GPU any more", device->synchronize());
  CHECK_ERROR(PF_CUDA_FAILED, "this process cannot use the GPU any more", device->info());
}

}  // namespace

int main() {
  try {
    const std::shared_ptr<CudaDevice> device = pilotfish::open_cuda_device(0);
    CHECK(works(device));
    test_a_failed_call_is_named(device);
    test_memory_that_is_not_there(device);
    test_a_recording_that_fails(device);
    test_other_threads(device);
    test_what_it_is(device);
    test_a_fault_in_a_kernel(device);
  } catch (const pilotfish::Error& error) {
    check::failed(__FILE__, __LINE__, error.what());
  }
  if (check::num_failed == 0) std::printf("all device checks passed\n");
  return check::result();
}
