#include "engine/options.h"

#include <algorithm>

#include "base/status.h"
#include "base/token_tree.h"
#include "lookup/lookup_store.h"
#include "sampling/sampling_options.h"

namespace pilotfish {
namespace {

template <typename Value, typename Limit>
void check_range(const char* name, Value value, Limit least, Limit most) {
  if (!(value >= least && value <= most)) {
    fail(PF_INVALID_ARGUMENT, name, " is ", value, ", allowed are ", least, " to ", most);
  }
}

void check_tree(const pf_generate_options& options, int32_t max_draft_tokens) {
  if (options.tree_nodes == 0 && options.tree_depth == 0) return;
  if (options.num_draft_tokens > 0) {
    fail(PF_INVALID_ARGUMENT, "num_draft_tokens is ", options.num_draft_tokens, ", must be 0 where a tree is given");
  }
  check_range("tree_nodes", options.tree_nodes, 1, max_draft_tokens);
  check_range("tree_depth", options.tree_depth, 0, options.tree_nodes);
  const int32_t source = options.draft_source;
  if (source == PF_DRAFT_PLAIN || source == PF_DRAFT_LOOKUP) {
    fail(PF_INVALID_ARGUMENT, "draft_source is ", source, ", but a tree is drafted by the draft model or the head");
  }
}

void check_plain(const pf_generate_options& options) {
  if (options.draft_source == PF_DRAFT_PLAIN && options.num_draft_tokens > 0) {
    fail(PF_INVALID_ARGUMENT, "num_draft_tokens is ", options.num_draft_tokens, ", but draft_source is ",
         PF_DRAFT_PLAIN, ", which drafts nothing");
  }
}

void check_typical(const pf_generate_options& options) {
  const float epsilon = options.typical_epsilon, delta = options.typical_delta;
  if (epsilon == 0 && delta == 0) return;
  if (!(epsilon > 0 && epsilon < 1)) fail(PF_INVALID_ARGUMENT, "typical_epsilon is ", epsilon, ", not in (0, 1)");
  if (!(delta > 0 && delta <= 1)) fail(PF_INVALID_ARGUMENT, "typical_delta is ", delta, ", not in (0, 1]");
  if (is_greedy(options)) {
    fail(PF_INVALID_ARGUMENT, "typical_epsilon is ", epsilon, ", but the temperature is ", options.temperature,
         ": greedy decoding is exact");
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
  options.num_sequences = 1;
  options.calibration = PF_CALIBRATION_KEPT;
  options.draft_window = 512;
  options.lookup_store_bytes = uint64_t{4} << 20;
  return options;
}

pf_generate_options default_generate_options() noexcept {
  pf_generate_options options{};
  options.struct_size = sizeof options;
  options.max_new_tokens = 256;
  options.num_draft_tokens = PF_AS_MANY_AS_PAY;
  set_sampling_defaults(options);
  options.reuse_prefix = 1;
  return options;
}

void check_options(const pf_engine_options& options) {
  check_size("pf_engine_options", options.struct_size, sizeof options);
  check_range("device", options.device, int32_t{PF_DEVICE_CPU}, int32_t{PF_DEVICE_CUDA});
  check_range("device_index", options.device_index, 0,
              options.device == PF_DEVICE_CUDA ? int32_t{PF_MOST_DEVICE_INDEX} : 0);
  if (!options.ort_library) fail(PF_INVALID_ARGUMENT, "ort_library is NULL, it must name libonnxruntime.so");
  check_range("num_threads", options.num_threads, 0, int32_t{PF_MOST_THREADS});
  check_range("max_context", options.max_context, 0, int32_t{PF_MOST_CONTEXT});
  check_range("max_draft_tokens", options.max_draft_tokens, 0, int32_t{PF_MOST_DRAFT_TOKENS});
  check_range("prefill_chunk", options.prefill_chunk, 0, int32_t{PF_MOST_PREFILL_CHUNK});
  check_range("num_sequences", options.num_sequences, 1, int32_t{PF_MOST_SEQUENCES});
  check_range("calibration", options.calibration, int32_t{PF_CALIBRATION_OFF}, int32_t{PF_CALIBRATION_REFRESH});
  check_range("verify_hashes", options.verify_hashes, int32_t{PF_VERIFY_ALWAYS}, int32_t{PF_VERIFY_NEVER});
  check_range("acceptance", options.acceptance, int32_t{PF_ACCEPT_EQUAL}, int32_t{PF_ACCEPT_REJECTION});
  check_range("max_wait_ms", options.max_wait_ms, 0, int32_t{PF_MOST_WAIT_MS});
  if (options.draft_window != 0) {
    check_range("draft_window", options.draft_window, PF_LEAST_DRAFT_WINDOW, PF_MOST_CONTEXT);
  }
  if (options.lookup_store) {
    check_range("lookup_store_bytes", options.lookup_store_bytes, LookupStore::kLeastBytes, LookupStore::kMostBytes);
  }
}

void check_options(const pf_generate_options& options, int32_t max_draft_tokens) {
  check_size("pf_generate_options", options.struct_size, sizeof options);
  check_range("max_new_tokens", options.max_new_tokens, 1, int32_t{PF_MOST_CONTEXT});
  check_range("num_draft_tokens", options.num_draft_tokens, int32_t{PF_AS_MANY_AS_PAY}, max_draft_tokens);
  check_range("ignore_eos", options.ignore_eos, 0, 1);
  check_range("draft_source", options.draft_source, int32_t{PF_DRAFT_AUTO}, int32_t{PF_DRAFT_LOOKUP_HEAD});
  check_range("reuse_prefix", options.reuse_prefix, 0, 1);
  check_sampling(options);
  check_plain(options);
  check_tree(options, max_draft_tokens);
  check_typical(options);
}

TreeLimits tree_limits(const pf_generate_options& options) noexcept {
  const int32_t depth = std::min<int32_t>(PF_DEFAULT_TREE_DEPTH, options.tree_nodes);
  return {options.tree_nodes, options.tree_depth > 0 ? options.tree_depth : depth};
}

}  // namespace pilotfish
