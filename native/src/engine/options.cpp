#include "engine/options.h"

#include <string>

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

void check_parents(const pf_generate_options& options, int32_t max_draft_tokens) {
  if (!options.tree_parents) fail(PF_INVALID_ARGUMENT, "tree_parents is NULL");
  if (options.num_tree_parents > size_t(max_draft_tokens)) {
    fail(PF_INVALID_ARGUMENT, "the tree has ", options.num_tree_parents, " tokens, max_draft_tokens is ",
         max_draft_tokens);
  }
  int32_t least = TokenTree::kRoot;
  for (int32_t i = 0; i < static_cast<int32_t>(options.num_tree_parents); ++i) {
    check_range("a tree parent", options.tree_parents[i], least, i - 1);
    least = options.tree_parents[i];
  }
}

void check_widths(const pf_generate_options& options, int32_t max_draft_tokens) {
  if (!options.tree_widths) fail(PF_INVALID_ARGUMENT, "tree_widths is NULL");
  if (options.num_tree_widths > size_t(TokenTree::kMaxTokens)) {
    fail(PF_INVALID_ARGUMENT, "num_tree_widths is ", options.num_tree_widths, ", allowed are 0 to ",
         TokenTree::kMaxTokens);
  }
  for (size_t i = 0; i < options.num_tree_widths; ++i) {
    check_range("a tree width", options.tree_widths[i], 1, TokenTree::kMaxTokens);
  }
  const int32_t num_tokens = TreeShape::fixed({options.tree_widths, options.num_tree_widths}).num_tokens();
  if (num_tokens > max_draft_tokens) {
    const bool is_counted = num_tokens <= TokenTree::kMaxTokens;
    fail(PF_INVALID_ARGUMENT, "the tree has ",
         is_counted ? std::to_string(num_tokens) : "more than " + std::to_string(PF_MOST_DRAFT_TOKENS),
         " tokens, max_draft_tokens is ", max_draft_tokens);
  }
}

void check_tree_source(const pf_generate_options& options) {
  const int32_t source = options.draft_source;
  if (source == PF_DRAFT_PLAIN || source == PF_DRAFT_LOOKUP) {
    fail(PF_INVALID_ARGUMENT, "draft_source is ", source, ", but a tree is drafted by the draft model or the head");
  }
  const bool with_lookup = source == PF_DRAFT_LOOKUP_MODEL || source == PF_DRAFT_LOOKUP_HEAD;
  if (with_lookup && options.tree_nodes == 0) {
    fail(PF_INVALID_ARGUMENT, "draft_source is ", source,
         ", but only in a tree of tree_nodes looked-up tokens compete with those of a model");
  }
  if (source == PF_DRAFT_MODEL && options.num_tree_parents > 0) {
    fail(PF_INVALID_ARGUMENT, "draft_source is ", source, ", but tree_parents are for heads");
  }
}

void check_tree(const pf_generate_options& options, int32_t max_draft_tokens) {
  const bool is_fixed = options.num_tree_widths > 0, is_sparse = options.num_tree_parents > 0;
  const bool is_dynamic = options.tree_nodes != 0 || options.tree_depth != 0;
  if (!is_fixed && !is_dynamic && !is_sparse) return;
  if (is_fixed + is_dynamic + is_sparse > 1) {
    fail(PF_INVALID_ARGUMENT,
         "of tree_widths, tree_nodes and tree_parents more than one is given: a tree has one shape");
  }
  if (options.num_draft_tokens > 0) {
    fail(PF_INVALID_ARGUMENT, "num_draft_tokens is ", options.num_draft_tokens, ", must be 0 where a tree is given");
  }
  if (is_dynamic) {
    check_range("tree_nodes", options.tree_nodes, 1, max_draft_tokens);
    check_range("tree_depth", options.tree_depth, 0, options.tree_nodes);
  }
  check_tree_source(options);
  if (is_sparse) check_parents(options, max_draft_tokens);
  if (is_fixed) check_widths(options, max_draft_tokens);
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
  check_range("acceptance", options.acceptance, int32_t{PF_ACCEPT_EQUAL}, int32_t{PF_ACCEPT_REJECTION});
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

bool has_tree(const pf_generate_options& options) noexcept {
  return options.num_tree_widths > 0 || options.tree_nodes > 0 || options.num_tree_parents > 0;
}

TreeShape tree_shape(const pf_generate_options& options) noexcept {
  if (options.num_tree_widths > 0) return TreeShape::fixed({options.tree_widths, options.num_tree_widths});
  if (options.num_tree_parents > 0) return TreeShape::sparse({options.tree_parents, options.num_tree_parents});
  if (options.tree_nodes > 0) {
    const int32_t depth = std::min<int32_t>(PF_DEFAULT_TREE_DEPTH, options.tree_nodes);
    return TreeShape::dynamic(options.tree_nodes, options.tree_depth > 0 ? options.tree_depth : depth);
  }
  return TreeShape::chain(0);
}

}  // namespace pilotfish
