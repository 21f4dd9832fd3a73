// What fuzzing runs: a fork server that opens bundles and generates from them.
// ONNX Runtime is loaded once; every bundle whose folder is named on a line of
// standard input is tried in a child of its own, and one line about how the
// child ended goes to standard output. Built with the sanitizers, whose reports
// go to the file of the third argument.
//   open_bundle LIBONNXRUNTIME SEED_BUNDLE REPORT_FILE
#include <dlfcn.h>
#include <fcntl.h>
#include <pilotfish.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "every_source.h"

namespace {

constexpr int kRefused = 3;  // the exit status of a child whose bundle was
                             // refused; 0: it generated to the end
// A bundle takes milliseconds. Processor time tells a hang from a machine that
// is busy, the alarm one that waits.
constexpr rlim_t kCpuSeconds = 8;  // 2 s without the sanitizers
constexpr unsigned kWallSeconds = 60;
constexpr uint64_t kBudgetBytes = uint64_t{256} << 20;
constexpr long kMostResidentKiB = 640 << 10;  // the budget, and what sanitizers add
constexpr size_t kPromptTokens = 48;
constexpr size_t kCapacity = 64;
constexpr int32_t kMostScored = 1 << 18;  // ids of a vocabulary whose logits there is memory for here

bool is_child = false;  // only there it is watched which files are opened

// ONNX Runtime reads the graph and no other file: weights are the library's to
// read and to bound.
void check_open(const char* path, const void* caller) {
  if (!is_child) return;
  Dl_info info{};
  if (dladdr(caller, &info) == 0 || std::string_view(info.dli_fname).find("onnxruntime") == std::string_view::npos) {
    return;
  }
  const std::string_view name(path);
  if (name.ends_with(".onnx") || name.starts_with("/sys/") || name.starts_with("/proc/")) return;
  std::fprintf(stderr, "SUMMARY: ONNX Runtime opens a file of its own: %s\n", path);
  std::abort();
}

pf_engine_options engine_options(const char* library) {
  pf_engine_options options;
  pf_engine_options_init(&options);
  options.ort_library = library;
  options.num_threads = 1;  // a fork keeps no other thread
  options.num_sequences = 2;
  options.prefill_chunk = 16;
  options.max_draft_tokens = 8;
  options.calibration = PF_CALIBRATION_OFF;
  options.memory_budget_bytes = kBudgetBytes;
  return options;
}

// Runs a request to its end and asks all that can be asked. Refusals are as
// good as tokens.
void generate(pf_engine* engine, const std::vector<int32_t>& ids, const pf_generate_options& options) {
  pf_request* request = nullptr;
  if (pf_request_open(engine, ids.data(), ids.size(), &options, &request) != PF_OK) return;
  std::array<pf_token, kCapacity> tokens;
  std::vector<int32_t> top_ids(kCapacity * 256);
  std::vector<float> top_logprobs(top_ids.size());
  pf_finish finish = PF_FINISH_NONE;
  while (finish == PF_FINISH_NONE) {
    size_t num_tokens = 0;
    if (pf_request_step(request, tokens.data(), tokens.size(), &num_tokens, &finish) != PF_OK) break;
    pf_request_get_top_logprobs(request, top_ids.data(), top_logprobs.data());
  }
  pf_stats stats{};
  stats.struct_size = sizeof stats;
  pf_request_get_stats(request, &stats);
  pf_request_close(request);
}

// The session that lies in the bundle's folder, if there is one: its
// conversation goes on.
pf_status continue_session(pf_engine* engine, const char* bundle) {
  pf_session* session = nullptr;
  const pf_status status = pf_engine_load_session(engine, (std::string(bundle) + "/session").c_str(), &session);
  if (status == PF_FILE_MISSING) return PF_OK;
  if (status != PF_OK) return status;
  size_t num_ids = 0, num_bytes = 0;
  const int32_t* const ids = pf_session_ids(session, &num_ids);
  pf_session_note(session, &num_bytes);
  const std::vector<int32_t> prompt(ids, ids + num_ids);
  pf_session_close(session);
  if (prompt.empty()) return PF_OK;
  for (const pf_generate_options& each : every_source()) generate(engine, prompt, each);
  return PF_OK;
}

pf_status try_bundle(const char* bundle, const char* library) {
  const pf_engine_options options = engine_options(library);
  pf_engine_info info{};
  info.struct_size = sizeof info;
  pf_plan(bundle, &options, &info);
  pf_engine* engine = nullptr;
  const pf_status status = pf_engine_open(bundle, &options, &engine);
  if (status != PF_OK) return status;
  pf_engine_get_info(engine, &info);
  std::vector<int32_t> ids(kPromptTokens);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i % 7 + 1) % info.vocab_size;
  if (info.vocab_size <= kMostScored) {
    std::vector<float> logits(ids.size() * static_cast<size_t>(info.vocab_size));
    for (const int32_t model : {PF_MODEL_TARGET, PF_MODEL_DRAFT}) {
      pf_engine_logits(engine, model, ids.data(), ids.size(), logits.data());
    }
  }
  const pf_status refused = continue_session(engine, bundle);
  for (const pf_generate_options& each : every_source()) generate(engine, ids, each);
  const pf_status broken = pf_engine_get_info(engine, &info);
  pf_engine_close(engine);
  return broken == PF_OK ? refused : broken;
}

[[noreturn]] void run_child(const std::string& bundle, const char* library) {
  is_child = true;
  const rlimit cpu{kCpuSeconds, kCpuSeconds + 1};
  setrlimit(RLIMIT_CPU, &cpu);
  alarm(kWallSeconds);
  const pf_status status = try_bundle(bundle.c_str(), library);
  if (status != PF_OK) std::fprintf(stderr, "status %d: %s\n", static_cast<int>(status), pf_last_error());
  std::fflush(stderr);
  _exit(status == PF_OK ? 0 : kRefused);
}

std::string outcome(int status, const rusage& usage) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return number == SIGXCPU || number == SIGALRM || number == SIGKILL ? "hang" : "signal " + std::to_string(number);
  }
  if (usage.ru_maxrss > kMostResidentKiB) return "memory " + std::to_string(usage.ru_maxrss >> 10) + " MiB";
  const int code = WEXITSTATUS(status);
  return code == 0 ? "generated" : code == kRefused ? "refused" : "report";
}

}  // namespace

// ONNX Runtime's calls of these come here first: they are visible, as PF_API
// says.
extern "C" PF_API int open(const char* path, int flags, ...) {
  check_open(path, __builtin_return_address(0));
  va_list rest;
  va_start(rest, flags);
  const int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
  va_end(rest);
  return openat(AT_FDCWD, path, flags, mode);
}
extern "C" PF_API int open64(const char* path, int flags, ...) __attribute__((alias("open")));

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: open_bundle LIBONNXRUNTIME SEED_BUNDLE REPORT_FILE\n");
    return 2;
  }
  // The environment of ONNX Runtime lives as long as an engine does: children
  // find it made.
  const pf_engine_options options = engine_options(argv[1]);
  pf_engine* engine = nullptr;
  if (pf_engine_open(argv[2], &options, &engine) != PF_OK) {
    std::fprintf(stderr, "%s\n", pf_last_error());
    return 1;
  }
  std::string bundle;
  while (std::getline(std::cin, bundle)) {
    const int report = creat(argv[3], 0600);
    const pid_t child = fork();
    if (report < 0 || child < 0) return 1;
    if (child == 0) {
      dup2(report, STDERR_FILENO);
      run_child(bundle, argv[1]);
    }
    close(report);
    int status = 0;
    rusage usage{};
    wait4(child, &status, 0, &usage);
    std::cout << outcome(status, usage) << std::endl;
  }
  pf_engine_close(engine);
  return 0;
}
