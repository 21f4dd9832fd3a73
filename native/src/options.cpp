#include "options.h"

#include <sched.h>

#include <fstream>
#include <set>
#include <string>

#include "status.h"

namespace pilotfish {
namespace {

constexpr int32_t kMostDraftTokens = 63;  // with the token before them they fill a 64-bit tree mask
constexpr int32_t kMostChunk = 4096;
constexpr int32_t kMostThreads = 1024;
constexpr int32_t kMostSequences = 1024;
constexpr int32_t kMostContext = 1 << 22;

template <typename Value, typename Limit>
void check_range(const char* name, Value value, Limit least, Limit most) {
  if (!(value >= least && value <= most)) {
    fail(PF_INVALID_ARGUMENT, name, " is ", value, ", allowed are ", least, " to ", most);
  }
}

void check_size(const char* name, uint32_t found, size_t expected) {
  if (found != expected) {
    fail(PF_INVALID_ARGUMENT, name, ".struct_size is ", found, ", this library's has ", expected,
         " bytes: call its init function, and build against this version's header");
  }
}

}  // namespace

pf_engine_options default_engine_options() noexcept {
  pf_engine_options options{};
  options.struct_size = sizeof options;
  options.device = PF_DEVICE_CPU;
  options.max_draft_tokens = 8;
  options.prefill_chunk = 256;
  options.num_sequences = 1;
  return options;
}

pf_generate_options default_generate_options() noexcept {
  pf_generate_options options{};
  options.struct_size = sizeof options;
  options.max_new_tokens = 128;
  options.top_p = 1;
  options.reuse_prefix = 1;
  return options;
}

void check_options(const pf_engine_options& options) {
  check_size("pf_engine_options", options.struct_size, sizeof options);
  check_range("device", options.device, int32_t{PF_DEVICE_CPU}, int32_t{PF_DEVICE_CUDA});
  if (!options.ort_library) fail(PF_INVALID_ARGUMENT, "ort_library is NULL, it must name libonnxruntime.so");
  check_range("num_threads", options.num_threads, 0, kMostThreads);
  check_range("max_context", options.max_context, 0, kMostContext);
  check_range("max_draft_tokens", options.max_draft_tokens, 0, kMostDraftTokens);
  check_range("prefill_chunk", options.prefill_chunk, 1, kMostChunk);
  check_range("num_sequences", options.num_sequences, 1, kMostSequences);
}

void check_options(const pf_generate_options& options, int32_t max_draft_tokens) {
  check_size("pf_generate_options", options.struct_size, sizeof options);
  check_range("max_new_tokens", options.max_new_tokens, 1, kMostContext);
  check_range("num_draft_tokens", options.num_draft_tokens, 0, max_draft_tokens);
  check_range("ignore_eos", options.ignore_eos, 0, 1);
  check_range("adaptive_draft", options.adaptive_draft, 0, 1);
  check_range("reuse_prefix", options.reuse_prefix, 0, 1);
  check_range("temperature", options.temperature, 0.0f, 100.0f);
  check_range("top_k", options.top_k, 0, INT32_MAX);
  if (!(options.top_p > 0 && options.top_p <= 1))
    fail(PF_INVALID_ARGUMENT, "top_p is ", options.top_p, ", not in (0, 1]");
  if (!(options.min_p >= 0 && options.min_p < 1))
    fail(PF_INVALID_ARGUMENT, "min_p is ", options.min_p, ", not in [0, 1)");
  if (options.num_stop_ids > 0 && !options.stop_ids) fail(PF_INVALID_ARGUMENT, "stop_ids is NULL");
}

int32_t num_physical_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  std::set<std::string> cores;  // a core is known by the list of its siblings
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = std::to_string(cpu);
    cores.insert(siblings);
  }
  return cores.empty() ? 1 : static_cast<int32_t>(cores.size());
}

}  // namespace pilotfish
