/* Token ids in, token ids out: the C API from open to close.
 *   cc generate.c $(python -m pilotfish.bindings) -o generate
 *   ./generate BUNDLE LIBONNXRUNTIME NUM_DRAFT_TOKENS MAX_NEW_TOKENS ID...
 * `pilotfish doctor` shows the path of LIBONNXRUNTIME; -1 drafts as many tokens as pay off. */
#include <errno.h>
#include <pilotfish.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const char* what, pf_status status) {
  fprintf(stderr, "%s: error %d: %s\n", what, (int)status, pf_last_error());
  return 1;
}

/* A whole decimal number; anything else ends the program. */
static int32_t parse(const char* text) {
  char* end = NULL;
  errno = 0;
  const long value = strtol(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || value < INT32_MIN || value > INT32_MAX) {
    fprintf(stderr, "'%s' is not a whole number\n", text);
    exit(2);
  }
  return (int32_t)value;
}

static int generate(pf_engine* engine, const pf_generate_options* options, const int32_t* ids, size_t num_ids) {
  pf_request* request = NULL;
  pf_status status = pf_request_open(engine, ids, num_ids, options, &request);
  if (status != PF_OK) return failed("pf_request_open", status);

  pf_token tokens[64]; /* a round yields at most num_draft_tokens + 1 */
  pf_finish finish = PF_FINISH_NONE;
  while (finish == PF_FINISH_NONE) {
    size_t num_tokens = 0;
    status = pf_request_step(request, tokens, 64, &num_tokens, &finish);
    if (status != PF_OK) break;
    for (size_t i = 0; i < num_tokens; ++i) printf("%d ", (int)tokens[i].id);
    fflush(stdout);
  }
  if (status == PF_OK) {
    pf_stats stats;
    status = pf_request_get_stats(request, &stats);
    const double decoding = stats.draft_seconds + stats.verify_seconds + stats.other_seconds;
    fprintf(stderr, "\n%d tokens in %d rounds, %d of %d drafted tokens accepted; prefill %.1f ms, then %.1f tokens/s\n",
            (int)stats.num_new_tokens, (int)stats.num_rounds, (int)stats.num_accepted, (int)stats.num_drafted,
            1e3 * stats.prefill_seconds, (stats.num_new_tokens - 1) / decoding);
  }
  const int result = status == PF_OK ? 0 : failed("pf_request_step", status);
  pf_request_close(request);
  return result;
}

int main(int argc, char** argv) {
  if (argc < 6) {
    fprintf(stderr, "usage: generate BUNDLE LIBONNXRUNTIME NUM_DRAFT_TOKENS MAX_NEW_TOKENS ID...\n");
    return 2;
  }
  pf_engine_options engine_options;
  pf_engine_options_init(&engine_options);
  engine_options.ort_library = argv[2];
  pf_engine* engine = NULL;
  const pf_status status = pf_engine_open(argv[1], &engine_options, &engine);
  if (status != PF_OK) return failed("pf_engine_open", status);

  pf_generate_options options;
  pf_generate_options_init(&options);
  options.num_draft_tokens = parse(argv[3]);
  options.max_new_tokens = parse(argv[4]);

  const size_t num_ids = (size_t)(argc - 5);
  int32_t* ids = malloc(num_ids * sizeof *ids);
  if (!ids) return failed("malloc", PF_OUT_OF_MEMORY);
  for (size_t i = 0; i < num_ids; ++i) ids[i] = parse(argv[5 + i]);
  const int result = generate(engine, &options, ids, num_ids);
  free(ids);
  pf_engine_close(engine);
  return result;
}
