/* Prints, for each prompt, a digest of the bits of its logits and the tokens that follow it, greedy and sampled, with
 * each source of drafts that the bundle has. tests/aarch64.sh compares what different processors print.
 *   ./bundle_digest BUNDLE LIBONNXRUNTIME MAX_NEW_TOKENS < PROMPTS     one prompt a line, token ids
 * The exit code is 3 where the processor lacks the kernels that PILOTFISH_CPU asks for. */
#include <pilotfish.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMostIds = 512, kDraftTokens = 4, kNoKernels = 3 };

static void stop(const char* what) {
  fprintf(stderr, "%s: %s\n", what, pf_last_error());
  exit(1);
}

/* Token ids of a line; returns how many. */
static size_t read_ids(char* line, int32_t* ids) {
  size_t num_ids = 0;
  for (char* word = strtok(line, " \n"); word != NULL && num_ids < kMostIds; word = strtok(NULL, " \n")) {
    ids[num_ids++] = (int32_t)strtol(word, NULL, 10);
  }
  return num_ids;
}

static void print_logits(pf_engine* engine, int32_t vocab_size, const int32_t* ids, size_t num_ids) {
  const size_t num_logits = num_ids * (size_t)vocab_size;
  float* logits = malloc(num_logits * sizeof *logits);
  if (logits == NULL || pf_engine_logits(engine, PF_MODEL_TARGET, ids, num_ids, logits) != PF_OK) stop("logits");
  unsigned long long digest = 0xcbf29ce484222325u; /* FNV-1a */
  const unsigned char* bytes = (const unsigned char*)logits;
  for (size_t i = 0; i < num_logits * sizeof *logits; ++i) digest = (digest ^ bytes[i]) * 0x100000001b3u;
  printf("logits %016llx\n", digest);
  free(logits);
}

static void print_tokens(pf_engine* engine, const char* how, const char* source, const pf_generate_options* options,
                         const int32_t* ids, size_t num_ids) {
  pf_request* request = NULL;
  if (pf_request_open(engine, ids, num_ids, options, &request) != PF_OK) stop("pf_request_open");
  printf("%s %s", how, source);
  pf_token tokens[64];
  pf_finish finish = PF_FINISH_NONE;
  while (finish == PF_FINISH_NONE) {
    size_t num_tokens = 0;
    if (pf_request_step(request, tokens, 64, &num_tokens, &finish) != PF_OK) stop("pf_request_step");
    for (size_t i = 0; i < num_tokens; ++i) printf(" %d", (int)tokens[i].id);
    fflush(stdout); /* samples/count_instructions.sh sees rounds by it */
  }
  printf("\n");
  pf_request_close(request);
}

/* Tokens of plain decoding, and those with each source of drafts that the bundle has. */
static void print_sources(pf_engine* engine, const pf_engine_info* info, const pf_generate_options* options,
                          const int32_t* ids, size_t num_ids) {
  const struct {
    const char* name;
    int32_t source, num_draft_tokens, is_here;
  } sources[] = {
      {"plain", PF_DRAFT_PLAIN, 0, 1},
      {"auto", PF_DRAFT_AUTO, PF_AS_MANY_AS_PAY, 1},
      {"model", PF_DRAFT_MODEL, kDraftTokens, info->has_draft},
      {"lookup", PF_DRAFT_LOOKUP, kDraftTokens, 1},
      {"lookup+model", PF_DRAFT_LOOKUP_MODEL, kDraftTokens, info->has_draft},
      {"head", PF_DRAFT_HEAD, kDraftTokens, info->has_head},
      {"lookup+head", PF_DRAFT_LOOKUP_HEAD, kDraftTokens, info->has_head},
  };
  for (size_t i = 0; i < sizeof sources / sizeof *sources; ++i) {
    if (!sources[i].is_here) continue;
    pf_generate_options drafted = *options;
    drafted.draft_source = sources[i].source;
    drafted.num_draft_tokens = sources[i].num_draft_tokens;
    print_tokens(engine, options->temperature > 0 ? "sampled" : "greedy", sources[i].name, &drafted, ids, num_ids);
  }
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: bundle_digest BUNDLE LIBONNXRUNTIME MAX_NEW_TOKENS < PROMPTS\n");
    return 2;
  }
  if (pf_cpu_kernels() == NULL) return kNoKernels;
  pf_engine_options engine_options;
  pf_engine_options_init(&engine_options);
  engine_options.ort_library = argv[2];
  engine_options.calibration = PF_CALIBRATION_OFF; /* what it measures takes minutes in an emulator */
  engine_options.max_context = kMostIds;
  engine_options.num_threads = 1;
  pf_engine* engine = NULL;
  if (pf_engine_open(argv[1], &engine_options, &engine) != PF_OK) stop("pf_engine_open");
  pf_engine_info info;
  if (pf_engine_get_info(engine, &info) != PF_OK) stop("pf_engine_get_info");
  fprintf(stderr, "%s kernels\n", pf_cpu_kernels());

  pf_generate_options options;
  pf_generate_options_init(&options);
  options.max_new_tokens = (int32_t)strtol(argv[3], NULL, 10);
  options.seed = 7;
  static char line[8192];
  while (fgets(line, sizeof line, stdin) != NULL) {
    int32_t ids[kMostIds];
    const size_t num_ids = read_ids(line, ids);
    if (num_ids == 0) continue;
    print_logits(engine, info.vocab_size, ids, num_ids);
    options.temperature = 0;
    print_sources(engine, &info, &options, ids, num_ids);
    options.temperature = 0.8f;
    print_sources(engine, &info, &options, ids, num_ids);
  }
  pf_engine_close(engine);
  return 0;
}
