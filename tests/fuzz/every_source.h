// Requests of every source and shape of a draft, with and without reports, for
// the programs of this folder.
#ifndef PILOTFISH_TESTS_FUZZ_EVERY_SOURCE_H
#define PILOTFISH_TESTS_FUZZ_EVERY_SOURCE_H

#include <pilotfish.h>

#include <vector>

inline std::vector<pf_generate_options> every_source() {
  pf_generate_options base;
  pf_generate_options_init(&base);
  base.max_new_tokens = 8;
  base.ignore_eos = 1;
  std::vector<pf_generate_options> all;
  const auto add = [&](int32_t source, int32_t num_draft_tokens) -> pf_generate_options& {
    all.push_back(base);
    all.back().draft_source = source;
    all.back().num_draft_tokens = num_draft_tokens;
    return all.back();
  };
  pf_generate_options& reported = add(PF_DRAFT_PLAIN, PF_AS_MANY_AS_PAY);
  reported.echo = 1;
  reported.num_top_logprobs = 256;
  add(PF_DRAFT_AUTO, PF_AS_MANY_AS_PAY).temperature = 0.8f;
  for (const int32_t source : {PF_DRAFT_MODEL, PF_DRAFT_HEAD}) {
    add(source, 3);
    pf_generate_options& sampled = add(source, 8);
    sampled.temperature = 1.5f;
    sampled.reuse_prefix = 0;
    sampled.num_top_logprobs = 5;
    pf_generate_options& tree = add(source, PF_AS_MANY_AS_PAY);
    tree.tree_nodes = 7;
    tree.tree_depth = 3;
  }
  for (const int32_t source : {PF_DRAFT_LOOKUP, PF_DRAFT_LOOKUP_MODEL, PF_DRAFT_LOOKUP_HEAD}) add(source, 4);
  pf_generate_options& dynamic = add(PF_DRAFT_LOOKUP_MODEL, PF_AS_MANY_AS_PAY);
  dynamic.tree_nodes = 8;
  dynamic.tree_depth = 4;
  return all;
}

#endif
