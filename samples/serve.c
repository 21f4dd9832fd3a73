/* Many requests at once: lines come in while others run, and rounds share passes of the target.
 *   cc serve.c $(python -m pilotfish.bindings) -pthread -o serve
 *   ./serve BUNDLE LIBONNXRUNTIME NUM_SEQUENCES MAX_NEW_TOKENS
 * A line "NAME ID..." asks for a continuation, "cancel NAME" ends it. "NAME ID..." are its next tokens, and
 * "NAME end REASON" is its last line. One thread reads lines, one runs the engine; the lock guards what both touch. */
#include <pilotfish.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_IDS = 4096, MOST_NAME = 32, MOST_TOKENS = 64 };

typedef struct job {
  char name[MOST_NAME];
  int32_t ids[MOST_IDS];
  size_t num_ids;
  int is_cancelled;
  pf_request* request; /* NULL while it waits */
  struct job* next;
} job;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static job* jobs; /* in the order in which they came */
static int is_at_end;

static const char* const reasons[] = {
    [PF_FINISH_EOS] = "eos",         [PF_FINISH_STOP] = "stop",           [PF_FINISH_LENGTH] = "length",
    [PF_FINISH_CONTEXT] = "context", [PF_FINISH_CANCELLED] = "cancelled",
};

/* "NAME ID ID" -> a job; NULL for a line that is none. */
static job* parse(char* line) {
  job* made = calloc(1, sizeof *made);
  const char* word = strtok(line, " \n");
  if (!made || !word || strlen(word) >= MOST_NAME) return free(made), NULL;
  strcpy(made->name, word);
  while ((word = strtok(NULL, " \n")) && made->num_ids < MOST_IDS) {
    char* end = NULL;
    made->ids[made->num_ids++] = (int32_t)strtol(word, &end, 10);
    if (*end) return free(made), NULL;
  }
  return made;
}

/* A waiting job never begins; a running one ends within one round, as pf_request_cancel() may come from any thread. */
static void cancel(const char* name) {
  for (job* each = jobs; each; each = each->next) {
    if (strcmp(each->name, name) != 0) continue;
    each->is_cancelled = 1;
    if (each->request) pf_request_cancel(each->request);
  }
}

static void* read_lines(void* unused) {
  static char line[16 * MOST_IDS];
  while (fgets(line, sizeof line, stdin)) {
    pthread_mutex_lock(&lock);
    if (strncmp(line, "cancel ", 7) == 0) {
      line[strcspn(line, "\n")] = '\0';
      cancel(line + 7);
    } else {
      job* made = parse(line);
      job** last = &jobs;
      while (*last) last = &(*last)->next;
      *last = made;
      if (!made) fprintf(stderr, "a line is no NAME and ids\n");
    }
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
  }
  pthread_mutex_lock(&lock);
  is_at_end = 1;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
  return unused;
}

static void end(job* done, const char* why) {
  job** place = &jobs;
  while (*place != done) place = &(*place)->next;
  *place = done->next;
  printf("%s end %s\n", done->name, why);
  pf_request_close(done->request);
  free(done);
}

/* Opens what waits, in its order, as long as the caches have room; returns how many run and fills their steps. */
static size_t admit(pf_engine* engine, const pf_generate_options* options, job** running, pf_step* steps,
                    pf_token (*tokens)[MOST_TOKENS], size_t most) {
  size_t count = 0;
  int is_full = 0;
  for (job *each = jobs, *next; each && count < most; each = next) {
    next = each->next;
    if (!each->request && each->is_cancelled) {
      end(each, "cancelled");
      continue;
    }
    if (!each->request) {
      const pf_status status =
          is_full ? PF_ENGINE_BUSY : pf_request_open(engine, each->ids, each->num_ids, options, &each->request);
      is_full = status == PF_ENGINE_BUSY;
      if (status != PF_OK && !is_full) end(each, pf_last_error());
      if (status != PF_OK) continue;
    }
    running[count] = each;
    steps[count] = (pf_step){.request = each->request, .tokens_out = tokens[count], .capacity = MOST_TOKENS};
    ++count;
  }
  return count;
}

static void report(job* each, const pf_step* step) {
  if (step->num_tokens > 0) printf("%s", each->name);
  for (size_t i = 0; i < step->num_tokens; ++i) printf(" %d", (int)step->tokens_out[i].id);
  if (step->num_tokens > 0) printf("\n");
  if (step->status != PF_OK) {
    end(each, step->error);
  } else if (step->finish != PF_FINISH_NONE) {
    end(each, reasons[step->finish]);
  }
}

/* Until no line comes any more and all are through. */
static int run(pf_engine* engine, const pf_generate_options* options, size_t most) {
  job* running[PF_MOST_TOGETHER];
  pf_step steps[PF_MOST_TOGETHER];
  static pf_token tokens[PF_MOST_TOGETHER][MOST_TOKENS];
  pthread_mutex_lock(&lock);
  while (jobs || !is_at_end) {
    const size_t count = admit(engine, options, running, steps, tokens, most);
    if (count == 0 && !is_at_end) {
      pthread_cond_wait(&changed, &lock);
      continue;
    }
    pthread_mutex_unlock(&lock); /* lines are read while a round runs */
    const pf_status status = count ? pf_step_together(steps, count) : PF_OK;
    pthread_mutex_lock(&lock);
    if (status != PF_OK) return fprintf(stderr, "pf_step_together: %s\n", pf_last_error()), 1;
    for (size_t i = 0; i < count; ++i) report(running[i], &steps[i]);
    fflush(stdout);
  }
  pthread_mutex_unlock(&lock);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 5 || atoi(argv[3]) < 1 || atoi(argv[3]) > PF_MOST_TOGETHER || atoi(argv[4]) < 1) {
    fprintf(stderr, "usage: serve BUNDLE LIBONNXRUNTIME NUM_SEQUENCES (1 to 16) MAX_NEW_TOKENS\n");
    return 2;
  }
  pf_engine_options engine_options;
  pf_engine_options_init(&engine_options);
  engine_options.ort_library = argv[2];
  engine_options.num_sequences = atoi(argv[3]);
  pf_engine* engine = NULL;
  if (pf_engine_open(argv[1], &engine_options, &engine) != PF_OK) {
    fprintf(stderr, "pf_engine_open: %s\n", pf_last_error());
    return 1;
  }
  pf_generate_options options;
  pf_generate_options_init(&options);
  options.max_new_tokens = atoi(argv[4]);
  pthread_t reader;
  if (pthread_create(&reader, NULL, read_lines, NULL) != 0) return 1;
  const int result = run(engine, &options, (size_t)engine_options.num_sequences);
  if (result != 0) return result; /* the reader may wait for a line */
  pthread_join(reader, NULL);
  pf_engine_close(engine);
  return 0;
}
