// What stands between a user and a GPU is named, with the remedy, before any of CUDA's own libraries runs. Driver and
// kernels are fakes, but for the library of this build.
#include "device/cuda_library.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/status.h"
#include "check.h"
#include "device/cuda_build.h"

namespace {

using pilotfish::open_cuda_device;

void set_driver(const char* init, const char* version, const char* capabilities) {
  setenv("FAKE_CUDA_INIT", init, 1);
  setenv("FAKE_CUDA_VERSION", version, 1);
  setenv("FAKE_CUDA_CAPABILITIES", capabilities, 1);
}

const std::string kFolder = FAKE_FOLDER;
const pilotfish::CudaLibraries kFakes{kFolder + "/fake_cuda_library.so", kFolder + "/fake_cuda_driver.so"};

void test_a_build_without_cuda() {
  CHECK_ERROR(PF_UNSUPPORTED, "-DPILOTFISH_CUDA=ON", open_cuda_device(0, {"/nowhere/libpilotfish_cuda.so", "x"}));
  CHECK_ERROR(PF_UNSUPPORTED, "/nowhere/libpilotfish_cuda.so",
              open_cuda_device(0, {"/nowhere/libpilotfish_cuda.so", "x"}));
}

void test_a_library_of_something_else() {
  CHECK_ERROR(PF_UNSUPPORTED, "is not pilotfish's: it has no pilotfish_cuda_build",
              open_cuda_device(0, {kFakes.driver, kFakes.driver}));
}

void test_a_library_of_another_version() {
  set_driver("0", "13000", "90");
  CHECK_ERROR(PF_UNSUPPORTED, "of different builds",
              open_cuda_device(0, {kFolder + "/other_cuda_library.so", kFakes.driver}));
}

void test_no_driver() {
  CHECK_ERROR(PF_UNSUPPORTED, "there is no NVIDIA driver: libnothing.so.1",
              open_cuda_device(0, {kFakes.kernels, "libnothing.so.1"}));
  CHECK_ERROR(PF_UNSUPPORTED, "is no NVIDIA driver: it has no cuInit",
              open_cuda_device(0, {kFakes.kernels, kFakes.kernels}));
}

void test_a_driver_that_fails() {
  set_driver("999", "13000", "90");
  CHECK_ERROR(PF_UNSUPPORTED, "cuInit gives CUDA error 999", open_cuda_device(0, kFakes));
  set_driver("100", "13000", "");
  CHECK_ERROR(PF_UNSUPPORTED, "CUDA_VISIBLE_DEVICES", open_cuda_device(0, kFakes));
  set_driver("0", "13000", "");
  CHECK_ERROR(PF_UNSUPPORTED, "there is no GPU that this process may use", open_cuda_device(0, kFakes));
}

void test_an_old_driver() {
  set_driver("0", "12080", "90");
  CHECK_ERROR(PF_UNSUPPORTED, "runs CUDA up to 12.8, this build of pilotfish needs 13.0", open_cuda_device(0, kFakes));
  set_driver("0", "13020", "90");
  CHECK_ERROR(PF_CUDA_FAILED, "opened device 0", open_cuda_device(0, kFakes));
}

void test_which_device() {
  set_driver("0", "13000", "90 86");
  CHECK_ERROR(PF_CUDA_FAILED, "opened device 1", open_cuda_device(1, kFakes));
  CHECK_ERROR(PF_UNSUPPORTED, "cuda:2 does not exist; this process may use cuda:0 (Card 0), cuda:1 (Card 1)",
              open_cuda_device(2, kFakes));
}

void test_an_architecture_that_the_build_lacks() {
  set_driver("0", "13000", "90 75");
  CHECK_ERROR(PF_UNSUPPORTED, "no kernels for cuda:1, Card 1 (compute capability 7.5), only for 80, 86, 90",
              open_cuda_device(1, kFakes));
  set_driver("0", "13000", "87");
  CHECK_ERROR(PF_UNSUPPORTED, "-DPILOTFISH_CUDA_ARCHITECTURES=87", open_cuda_device(0, kFakes));
}

void test_which_code_runs_where() {
  using pilotfish::runs_on;
  CHECK(runs_on("80, 90", 80));
  CHECK(runs_on("80, 90", 89));   // a later revision of 8.0
  CHECK(!runs_on("86, 90", 80));  // an earlier one of 8.6
  CHECK(runs_on("80, 90", 120));  // by the PTX of 9.0
  CHECK(!runs_on("80, 120", 90));
  CHECK(runs_on("87", 87));
  CHECK(!runs_on("86, 120", 87));
  CHECK(!runs_on("87, 120", 89));
  CHECK(!runs_on("80, 90", 75));
  CHECK(!runs_on("", 90));
}

// Without a GPU, or in a build without CUDA kernels, asking for a device says what is missing; with both, it is one.
void test_this_build() {
  try {
    const auto device = open_cuda_device(0);
    CHECK(device->info().num_sms > 0);
    std::printf("device 0: %s\n", device->info().name.c_str());
  } catch (const pilotfish::Error& error) {
    CHECK_EQ(error.status(), pf_status{PF_UNSUPPORTED});
    std::printf("no device 0: %s\n", error.what());
  }
}

}  // namespace

int main() {
  test_a_build_without_cuda();
  test_a_library_of_something_else();
  test_a_library_of_another_version();
  test_no_driver();
  test_a_driver_that_fails();
  test_an_old_driver();
  test_which_device();
  test_an_architecture_that_the_build_lacks();
  test_which_code_runs_where();
  test_this_build();
  return check::result();
}
