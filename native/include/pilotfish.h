/* pilotfish: speculative decoding on one device. The whole C API; what is not here is not API.
 *
 * In the order of a program, which samples/generate.c is: pf_engine_options_init, pf_engine_open,
 * pf_generate_options_init, pf_request_open with the prompt's token ids, pf_request_step until it reports a finish,
 * pf_request_close, pf_engine_close. Text is the program's: a bundle's tokenizer.json is in the format of Hugging
 * Face's tokenizers.
 *
 * Every fallible function returns a pf_status: PF_OK or a negative code. Out parameters end in _out and are untouched
 * on failure. pf_last_error() explains the calling thread's last failure. Handles may be closed in any order; closing
 * NULL does nothing. Threads may share an engine, whose calls and steps take turns; a request serves one thread at a
 * time, except pf_request_cancel(), which any thread may call. Nothing may use a handle that is being closed. Paths
 * are UTF-8 on Windows and the file system's own bytes elsewhere. */
#ifndef PILOTFISH_H
#define PILOTFISH_H

#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define PF_API __declspec(dllexport)
#else
#define PF_API __attribute__((visibility("default")))
#endif
#define PF_VERSION "0.1.0"
#define PF_LEAST_TEMPERATURE 1e-37f /* a smaller one is greedy: its inverse would leave the numbers of a float */

#ifdef __cplusplus
extern "C" {
#endif

/* cdef:begin (the Python binding is cut from here) */
typedef int32_t pf_status;
enum {
  PF_OK = 0,
  PF_INVALID_ARGUMENT = -1,  /* a value outside its range; the message names it and the limit */
  PF_OUT_OF_MEMORY = -2,     /* the system refused memory */
  PF_FILE_MISSING = -3,      /* a file of the bundle is missing or cannot be read */
  PF_BUNDLE_CORRUPT = -4,    /* wrong size, hash or content, or a target whose logits are not numbers */
  PF_BUNDLE_VERSION = -5,    /* written by another format version */
  PF_PAIR_MISMATCH = -6,     /* draft and target do not share a vocabulary */
  PF_ORT_MISSING = -7,       /* ONNX Runtime's library cannot be opened */
  PF_ORT_VERSION = -8,       /* ONNX Runtime is too old */
  PF_ORT_FAILED = -9,        /* ONNX Runtime reported an error */
  PF_BUDGET_TOO_SMALL = -10, /* the memory plan does not fit the budget */
  PF_CONTEXT_FULL = -11,     /* prompt or output can never fit the context */
  PF_UNSUPPORTED = -12,      /* not available on this device or in this build */
  PF_CALLBACK_FAILED = -13,  /* a callback of the caller's reported a failure */
  PF_NO_TOKEN_LEFT = -14,    /* bias, bans and mask of a request leave no token to continue with */
  PF_CUDA_FAILED = -15,      /* a CUDA call failed; the message names it, its file and line */
  PF_ENGINE_BUSY = -16,      /* other requests hold the cache blocks that this one needs: try again when one closes */
  PF_INTERNAL = -99          /* a bug in pilotfish */
};

typedef enum { PF_DEVICE_CPU = 0, PF_DEVICE_CUDA = 1 } pf_device;
typedef enum {
  PF_MODEL_TARGET = 0,
  PF_MODEL_DRAFT = 1,
  PF_MODEL_HEAD = 2 /* for costs only: the first pass of a round's drafting */
} pf_model;
typedef enum {
  PF_ORIGIN_PLAIN = 0,     /* decoded without a draft */
  PF_ORIGIN_ACCEPTED = 1,  /* drafted and accepted */
  PF_ORIGIN_CORRECTED = 2, /* the target's own token in place of a rejected one */
  PF_ORIGIN_BONUS = 3,     /* the target's own token after a fully accepted block */
  PF_ORIGIN_PROMPT = 4     /* given, not generated: echo asks for these */
} pf_origin;
typedef enum {
  PF_FINISH_NONE = 0,
  PF_FINISH_EOS = 1,
  PF_FINISH_STOP = 2, /* one of stop_ids */
  PF_FINISH_LENGTH = 3,
  PF_FINISH_CONTEXT = 4,
  PF_FINISH_CANCELLED = 5
} pf_finish;

/* Where the tokens of a round's draft come from. */
typedef enum {
  PF_DRAFT_AUTO = 0,   /* round by round whatever is likely to be fastest, nothing included */
  PF_DRAFT_PLAIN = 1,  /* nothing is drafted: num_draft_tokens is not above 0 */
  PF_DRAFT_MODEL = 2,  /* the bundle's draft model */
  PF_DRAFT_LOOKUP = 3, /* what followed earlier occurrences of the last tokens; needs no model */
  /* Lookup first, the draft model where it finds nothing and for the rows that it leaves. */
  PF_DRAFT_LOOKUP_MODEL = 4,
  PF_DRAFT_HEAD = 5,       /* the bundle's head, which reads the target's hidden states */
  PF_DRAFT_LOOKUP_HEAD = 6 /* lookup first, then the head */
} pf_draft_source;
enum { PF_AS_MANY_AS_PAY = -1 };
/* Limits of options, here alone; their defaults are what the _init functions set. */
enum {
  PF_MOST_THREADS = 1024,
  PF_MOST_DEVICE_INDEX = 1024,
  PF_MOST_CONTEXT = 4194304, /* tokens, also of max_new_tokens and draft_window */
  PF_MOST_PREFILL_CHUNK = 4096,
  PF_MOST_SEQUENCES = 1024,
  PF_MOST_TOGETHER = 16, /* requests whose rounds share a pass of the target */
  PF_MOST_WAIT_MS = 60000,
  PF_MOST_DRAFT_TOKENS = 63, /* with the token before them they fill a tree mask's 64 bits */
  PF_DEFAULT_TREE_DEPTH = 6,
  PF_LEAST_DRAFT_WINDOW = 64,
  PF_LEAST_LOOKUP_STORE_BYTES = 4096,
  PF_MOST_LOOKUP_STORE_BYTES = 1073741824,
  PF_MOST_TEMPERATURE = 100,
  PF_MOST_PENALTY = 100, /* of each kind */
  PF_MOST_TOP_LOGPROBS = 256,
  PF_MOST_SESSION_NOTE = 16777216 /* bytes */
};
/* Whether the costs of passes, by which PF_DRAFT_AUTO decides, are measured at load. */
typedef enum {
  PF_CALIBRATION_OFF = 0,    /* guessed from the sizes of the weights */
  PF_CALIBRATION_KEPT = 1,   /* read from calibration_folder; measured, under a second, and kept there the first time */
  PF_CALIBRATION_REFRESH = 2 /* measured and kept */
} pf_calibration;
/* Whether hashes of a bundle's files are compared with the manifest's. Sizes always are, and graphs are checked. */
typedef enum {
  PF_VERIFY_ALWAYS = 0,
  PF_VERIFY_NEVER = 1 /* a damaged file goes unnoticed: for files that were checked where they came from */
} pf_verify_hashes;
/* What a load does, in this order. */
typedef enum {
  PF_LOAD_READING = 0,   /* files are read and checked, and models made of them */
  PF_LOAD_MEASURING = 1, /* passes are measured: pf_calibration says when */
  PF_LOAD_RECORDING = 2  /* rounds of a GPU are recorded */
} pf_load_stage;
/* When a drafted token is kept where decoding samples. */
typedef enum {
  /* It is the token that the target chooses there. Draft and target share the noise that they choose with, so that the
   * choices often agree, and the text is plain decoding's for the seed whatever drafts. */
  PF_ACCEPT_EQUAL = 0,
  /* Rejection sampling, for chains: their tokens are drawn, and what comes out follows the target's distribution, but
   * it is not plain decoding's text. A draft's distributions are kept, which takes memory, and rounds never run on a
   * GPU by themselves. Everything else is accepted as above. */
  PF_ACCEPT_REJECTION = 1
} pf_acceptance;
/* Why a round drafted what it did. */
typedef enum {
  PF_REASON_BEST = 0,  /* it promised the most tokens a second */
  PF_REASON_PROBE = 1, /* to see whether the draft model has become worth it */
  PF_REASON_PINNED = 2 /* the request's options say so */
} pf_reason;

typedef struct pf_engine pf_engine;
typedef struct pf_request pf_request;
typedef struct pf_session pf_session;

/* Told how far a load is: `done` of `total` bytes of weights have been read. It is called inside pf_engine_open, in its
 * thread: about ten times a second while files are waited for, when all of them have been read, and when another stage
 * begins. `stage` is a pf_load_stage. Returns 0, or another number to end the load with PF_CALLBACK_FAILED and nothing
 * left behind. */
typedef int32_t (*pf_progress_callback)(void* user, int32_t stage, uint64_t done, uint64_t total);

typedef struct {
  uint32_t struct_size;
  int32_t device;          /* pf_device */
  const char* ort_library; /* path of libonnxruntime.so.*, 1.22 or newer; `pilotfish doctor` shows that of the wheel */
  int32_t num_threads;     /* 0: pf_cpu_cores() */
  int32_t max_context;     /* tokens a sequence may hold; 0: the model's limit, at most 4096, less if the budget asks */
  int32_t max_draft_tokens; /* largest num_draft_tokens of a request, 0..PF_MOST_DRAFT_TOKENS */
  int32_t prefill_chunk; /* prompt rows a pass, at most PF_MOST_PREFILL_CHUNK; 0: 256, on a GPU 512, down to 64 if the
                            budget asks */
  int32_t num_sequences; /* requests that may be open at once, each with max_context tokens */
  /* 0: what the process may have, the machine's memory or that of its control group. On a GPU of the GPU's memory;
   * 0: what is free there. */
  uint64_t memory_budget_bytes;
  int32_t calibration;            /* pf_calibration */
  const char* calibration_folder; /* made if need be; NULL: costs are kept nowhere, and measured at each load */
  /* The last tokens of a sequence that the draft model sees at most, PF_LEAST_DRAFT_WINDOW or more: where it would see
   * more, or has more than a quarter of them to catch up with, it begins anew with about a quarter. 0: all that it has
   * positions for. */
  int32_t draft_window;
  const char* lookup_store;    /* file of earlier outputs to look up drafts in, of one tokenizer; NULL: none */
  uint64_t lookup_store_bytes; /* size of that file at most; the latest outputs stay */
  int32_t device_index;        /* which GPU, as the driver counts; 0 for PF_DEVICE_CPU */
  int32_t acceptance;          /* pf_acceptance */
  /* Milliseconds, 0..PF_MOST_WAIT_MS: so long at most a chunk of a prompt is to hold up the other requests of
   * pf_step_together() between two rounds of theirs, by what chunks have taken so far. A chunk has 4 tokens at least,
   * however long these take. 0: chunks of prefill_chunk tokens. */
  int32_t max_wait_ms;
  int32_t verify_hashes; /* pf_verify_hashes */
  /* Memory that the program takes beside this library, by its own count: a part of the plan, and of the budget. */
  uint64_t program_bytes;
  pf_progress_callback progress; /* NULL: off; pf_plan does not call it */
  void* progress_user;           /* passed to progress */
} pf_engine_options;

typedef struct {
  uint32_t struct_size;
  int32_t has_draft; /* 0 or 1 */
  int32_t vocab_size;
  int32_t max_context;
  int32_t num_threads;
  int32_t block_size;      /* tokens a cache block */
  int32_t num_blocks;      /* cache blocks a model */
  int32_t num_free_blocks; /* neither retained nor booked by a request */
  uint64_t target_weight_bytes;
  uint64_t draft_weight_bytes;
  uint64_t target_cache_bytes;
  uint64_t draft_cache_bytes;
  uint64_t activation_bytes; /* widest pass, logits included */
  uint64_t runtime_bytes;    /* ONNX Runtime and this library; on a GPU the driver's context with their part of it */
  uint64_t total_bytes;
  int32_t num_retained_blocks; /* kept for prompts that begin like an earlier request, free as soon as one is needed */
  int32_t is_calibrated;       /* 1: the costs of passes were measured, at this load or an earlier one */
  uint64_t lookup_bytes;       /* indexes of the sequences and of the store */
  int32_t has_head;            /* 0 or 1: the bundle has a head */
  uint64_t head_weight_bytes;
  uint64_t head_cache_bytes;
  uint64_t free_device_memory; /* bytes of the GPU before anything was loaded; 0: no GPU was asked for, or found */
  int32_t prefill_chunk;
  uint64_t program_bytes; /* as in the options; on a GPU, whose memory the plan is about then, 0 */
  /* Of the target's weights that there is no room for; they are not in total_bytes. On a GPU they stay in host memory,
   * page-locked, and come to the GPU in every pass; target_weight_bytes has the room that they pass through. On the CPU
   * passes read them from the mapped file, whose pages the system keeps where it has memory for them: the file must not
   * be changed then while the engine is open. */
  uint64_t target_streamed_bytes;
} pf_engine_info;

/* Which ids may follow the tokens that steps have returned so far and then `path`, drafted after them: sets bit i % 32
 * of mask_out[i / 32] for every id i that may. mask_out holds ceil(num_ids / 32) words, all zero, for the num_ids ids
 * of the tokenizer. Returns 0, or another number to fail the step with PF_CALLBACK_FAILED. It is called inside
 * pf_request_step, in its thread, at most once a path and step, never beyond an id that ends the text, and must not
 * call the engine. */
typedef int32_t (*pf_mask_callback)(void* user, const int32_t* path, size_t num_path, uint32_t* mask_out);

typedef struct {
  int32_t id;
  float bias; /* added to the score; -inf bans the id */
} pf_logit_bias;

/* Scores are processed in this order: mask, logit_bias, repetition_penalty, frequency and presence penalty,
 * no_repeat_ngram_size, min_new_tokens. If temperature is not 0 these follow: temperature, top_k, top_p, min_p,
 * typical_p. It is the order of transformers' `generate`. */
typedef struct {
  uint32_t struct_size;
  int32_t max_new_tokens;   /* >= 1 */
  int32_t num_draft_tokens; /* K a round whatever they cost, 0 for plain decoding, or PF_AS_MANY_AS_PAY */
  int32_t ignore_eos;       /* 0 or 1 */
  float temperature;        /* below PF_LEAST_TEMPERATURE: greedy */
  int32_t top_k;            /* 0: off */
  float top_p;              /* (0, 1]; 1: off */
  float min_p;              /* [0, 1); 0: off */
  /* Of the noise that tokens are chosen with where the temperature is not 0: the token at a position is the id with the
   * largest log-probability plus Gumbel noise of seed, position and id. An id that, after all options, has less than
   * 2^-24 of the likeliest one's probability is never chosen. */
  uint64_t seed;
  const int32_t* stop_ids; /* copied */
  size_t num_stop_ids;
  /* pf_draft_source; PF_DRAFT_AUTO with K tokens: of the draft model if there is one, else the head, else lookup */
  int32_t draft_source;
  /* 1: start from the cache of an earlier request that began alike, and leave it one; 0: neither */
  int32_t reuse_prefix;
  /* A tree of the draft model or the head instead of num_draft_tokens, which must not be above 0 then: the tree_nodes
   * likeliest tokens the draft finds in up to tree_depth levels, beside looked-up ones if the source says so. It has no
   * more than max_draft_tokens tokens. 0: none. */
  int32_t tree_nodes;
  int32_t tree_depth; /* 0: PF_DEFAULT_TREE_DEPTH, or tree_nodes where that is less */
  /* Typical acceptance, which is lossy: a drafted token is kept if its probability is above
   * min(typical_epsilon, typical_delta * exp(-entropy)). Needs a temperature. 0 and 0: off. */
  float typical_epsilon;
  float typical_delta;
  float typical_p;        /* (0, 1]; 1: off */
  int32_t min_new_tokens; /* 0..max_new_tokens: before that, EOS and stop_ids are banned */
  /* > 0; 1: off. Divides scores above zero of the tokens in the penalty window, prompt included; multiplies those
   * below. */
  float repetition_penalty;
  /* Subtracted from the scores of generated tokens in the penalty window, once and once an occurrence; 0: off. */
  float presence_penalty;
  float frequency_penalty;
  int32_t penalty_window;          /* the last tokens that penalties look at, prompt included; 0: all */
  int32_t no_repeat_ngram_size;    /* no n-gram occurs twice, prompt included; 0: off */
  const pf_logit_bias* logit_bias; /* copied; at most one an id */
  size_t num_logit_bias;
  int32_t num_top_logprobs; /* 0..PF_MOST_TOP_LOGPROBS likeliest ids reported with each token;
                               pf_request_get_top_logprobs */
  int32_t echo;             /* 0 or 1: steps return the prompt's tokens first. Their logprobs take a slow prefill */
  pf_mask_callback mask;    /* NULL: off */
  void* mask_user;          /* passed to mask; must outlive the request */
} pf_generate_options;

typedef struct {
  int32_t id;
  int32_t origin; /* pf_origin */
  float logprob;  /* natural log, from the target's unprocessed logits; NaN for the first token of an echoed prompt */
  double seconds; /* since pf_request_open */
} pf_token;

typedef struct {
  uint32_t struct_size;
  int32_t num_prompt_tokens;
  int32_t num_new_tokens;
  int32_t num_rounds; /* target passes after prefill */
  int32_t num_drafted;
  int32_t num_accepted; /* drafted tokens that were emitted */
  double prefill_seconds;
  double draft_seconds;
  double verify_seconds;        /* of a pass that requests share all of it */
  double other_seconds;         /* sampling, acceptance, cache work */
  int32_t num_prefilled_target; /* prompt tokens that the target ran; the others were retained */
  int32_t num_prefilled_draft;  /* tokens that the draft ran before its first proposal; 0: it proposed nothing */
  int32_t lossy;                /* 1: typical acceptance was asked for, so that the output is not the target's */
  int32_t num_lookup_rounds;    /* rounds that verified tokens found by lookup */
  int32_t num_lookup_drafted;
  int32_t num_lookup_accepted;
  int32_t num_model_rounds; /* rounds that ran the draft model */
  int32_t num_model_drafted;
  int32_t num_model_accepted;
  int32_t num_probe_rounds; /* of those, to see whether it has become worth it */
  int32_t num_head_rounds;  /* rounds that ran the head */
  int32_t num_head_drafted;
  int32_t num_head_accepted;
  double counted_seconds; /* of the rounds, by the costs of passes that they are planned by, and by no clock */
  /* Rounds whose tokens a GPU chose; the others handed their logits to the host: those with logit bias, penalties,
   * bans, a mask, typical_p, typical acceptance or top logprobs, and sampled ones with PF_ACCEPT_REJECTION. */
  int32_t num_device_rounds;
  /* Rounds in which the draft model's or head's logits were not numbers (NaN or infinite), so that it drafted less or
   * nothing: not 0 where the bundle's draft is damaged. The target's logits then are PF_BUNDLE_CORRUPT. */
  int32_t num_failed_drafts;
} pf_stats;

/* One request's part in pf_step_together(). */
typedef struct {
  pf_request* request;
  pf_token* tokens_out; /* room for `capacity` tokens, as of pf_request_step() */
  size_t capacity;
  size_t num_tokens; /* this and what follows is written by the call */
  pf_finish finish;
  pf_status status;
  const char* error; /* why the status is not PF_OK, NULL otherwise; valid until the request is closed */
} pf_step;

/* What a round was to draft, and what was expected of it. */
typedef struct {
  uint32_t struct_size;
  int32_t reason;     /* pf_reason */
  int32_t num_lookup; /* tokens found by lookup */
  int32_t num_model;  /* tokens of the draft model, at most */
  float expected_tokens;
  double expected_seconds;
  int32_t num_head;     /* tokens of the head, at most */
  int32_t num_levels;   /* of the tree of the model or head, at most: as many as it has tokens make a chain */
  int32_t num_passes;   /* of the model or head, that the round ran */
  int32_t num_verified; /* drafted tokens of all sources that the target saw */
  int32_t num_accepted; /* of these, on one path */
  /* [num_accepted]: each one's place among what the model or head thought of, the best 0; -1: drawn or looked up */
  int8_t ranks[PF_MOST_DRAFT_TOKENS];
} pf_decision;

/* A GPU, and what this build has for it. */
typedef struct {
  uint32_t struct_size;
  int32_t num_devices;
  int32_t compute_capability; /* 90 is 9.0 */
  int32_t num_multiprocessors;
  int32_t driver_version; /* 13000: the driver runs CUDA up to 13.0 */
  int32_t build_version;  /* of the CUDA toolkit that the kernels were built with */
  uint64_t total_bytes;
  uint64_t free_bytes;
  double read_bytes_per_second; /* by a kernel that only reads; 0 unless it was to be measured */
  char name[128];
  char architectures[64]; /* compute capabilities that the build has device code for, "80, 90", the last as PTX too */
  /* Whether the CUDA kernels of ONNX Runtime itself run on it, which older bundles and layers that are not fused whole
   * need; 0 where ort_library was NULL. */
  int32_t has_provider_kernels;
} pf_cuda_info;

/* Version of the library, equal to PF_VERSION of the header it was built from. Static. */
PF_API const char* pf_version(void);
/* Message of this thread's last failure; valid until its next failing call. Owned by the library. */
PF_API const char* pf_last_error(void);
/* Instruction set whose kernels run here: "avx512vnni", "avx2", "i8mm", "dotprod", "neon" or "portable". Static. NULL
 * if the environment variable PILOTFISH_CPU asks for a set that is not here. */
PF_API const char* pf_cpu_kernels(void);
/* The fastest kernels for this processor, which run unless PILOTFISH_CPU says otherwise. */
PF_API const char* pf_best_cpu_kernels(void);
/* The processor, as its maker calls it. */
PF_API const char* pf_cpu_name(void);
/* Threads of a pass where num_threads is 0: the physical cores that this process may run on, or fewer where the CPU
 * quota of its control groups (a container's limit) is worth fewer. */
PF_API int32_t pf_cpu_cores(void);
/* Version string of the ONNX Runtime at `ort_library`, copied to buffer (truncated, zero-terminated). */
PF_API pf_status pf_ort_version(const char* ort_library, char* buffer, size_t capacity);
/* Describes GPU device_index, and measures its memory bandwidth (some milliseconds) unless `measure` is 0.
 * PF_UNSUPPORTED where this build or machine has none, or not that one. Where ort_library is not NULL, PF_ORT_MISSING
 * explains why the ONNX Runtime there cannot run on it. */
PF_API pf_status pf_cuda_describe(int32_t device_index, const char* ort_library, int32_t measure,
                                  pf_cuda_info* info_out);

/* The CPU, a thread for each of pf_cpu_cores(), the model's context (at most 4096), chunks of 256 rows, one request at
 * a time with up to 8 drafted tokens, no budget, PF_CALIBRATION_KEPT in no folder, a draft window of 512, no store (4
 * MiB once one is named). ort_library is left to the program. */
PF_API void pf_engine_options_init(pf_engine_options* options);
/* Checks a bundle folder and loads it. The caller closes *engine_out. */
PF_API pf_status pf_engine_open(const char* bundle, const pf_engine_options* options, pf_engine** engine_out);
PF_API void pf_engine_close(pf_engine* engine);
/* Sizes, and the cache blocks that are free and retained now. Verifies the cache's invariants on the way (free + used +
 * retained == total, no owner unknown); PF_INTERNAL names the violation. */
PF_API pf_status pf_engine_get_info(const pf_engine* engine, pf_engine_info* info_out);
/* The same plan that pf_engine_open makes, from the manifest alone, without loading. */
PF_API pf_status pf_plan(const char* bundle, const pf_engine_options* options, pf_engine_info* info_out);
/* Logits of every position of ids: float [num_ids, vocab_size of the target] at logits_out; -inf where the draft's
 * vocabulary is smaller. `model` is a pf_model. Uses and returns cache blocks. */
PF_API pf_status pf_engine_logits(pf_engine* engine, int32_t model, const int32_t* ids, size_t num_ids,
                                  float* logits_out);
/* Times one pass of num_rows rows after context committed tokens, num_repeats times: seconds_out[num_repeats]. */
PF_API pf_status pf_engine_time_pass(pf_engine* engine, int32_t model, int32_t num_rows, int32_t context,
                                     int32_t num_repeats, double* seconds_out);

/* Seconds that a pass of num_rows rows after context tokens is taken to cost when a round is planned. */
PF_API pf_status pf_engine_get_cost(const pf_engine* engine, int32_t model, int32_t num_rows, int32_t context,
                                    double* seconds_out);
/* Writes the lookup store's file anew, as a whole, if outputs were added since. Closing the engine does not. */
PF_API pf_status pf_engine_save_lookup(pf_engine* engine);

/* Saves a conversation: its token ids, what requests that have ended left in the caches of its beginning (the target's,
 * the draft model's and the head's, in whole blocks), and a note of note_bytes bytes, at most PF_MOST_SESSION_NOTE,
 * which is the caller's. The file takes the place of an earlier one as a whole. *num_tokens_out: tokens whose caches
 * are in it; those after them run again. PF_FILE_MISSING: it cannot be written. */
PF_API pf_status pf_engine_save_session(pf_engine* engine, const char* path, const int32_t* ids, size_t num_ids,
                                        const char* note, size_t note_bytes, int32_t* num_tokens_out);
/* Loads what pf_engine_save_session() saved, for requests that begin alike: they go on with the same bits, drafts
 * included, as in the engine that saved it. The caller closes *session_out. The file may be anybody's.
 * PF_PAIR_MISMATCH: it is of another bundle; PF_BUNDLE_VERSION: of another version or device; PF_BUNDLE_CORRUPT:
 * damaged, cut short or no session; PF_FILE_MISSING: it cannot be read; PF_CONTEXT_FULL: the context is too small for
 * it; PF_ENGINE_BUSY: open requests hold the cache blocks that it needs. */
PF_API pf_status pf_engine_load_session(pf_engine* engine, const char* path, pf_session** session_out);
/* The conversation's token ids and the note, owned by the session; and how many of the tokens are cached. */
PF_API const int32_t* pf_session_ids(const pf_session* session, size_t* num_ids_out);
PF_API const char* pf_session_note(const pf_session* session, size_t* note_bytes_out);
PF_API int32_t pf_session_num_cached(const pf_session* session);
PF_API void pf_session_close(pf_session* session);

/* Greedy, at most 256 tokens, PF_DRAFT_AUTO with PF_AS_MANY_AS_PAY tokens, reuse_prefix; everything else off. */
PF_API void pf_generate_options_init(pf_generate_options* options);
/* Reserves cache blocks for prompt + max_new_tokens; copies ids. The caller closes *request_out. PF_CONTEXT_FULL: the
 * prompt can never fit; PF_ENGINE_BUSY: it will once open requests are closed. */
PF_API pf_status pf_request_open(pf_engine* engine, const int32_t* ids, size_t num_ids,
                                 const pf_generate_options* options, pf_request** request_out);
/* The first call runs the prefill and writes the first token, every further one runs a round and writes its tokens, an
 * EOS or stop id included. With echo, earlier calls write the prompt, at most `capacity` tokens each and the first one
 * only its first token. capacity must be at least 1 + num_draft_tokens, the levels of the tree, or the engine's
 * max_draft_tokens for PF_AS_MANY_AS_PAY. After *finish_out != PF_FINISH_NONE further calls write no token and report
 * the same reason. On failure the request is finished and only pf_request_close is of use; the engine stays usable. */
PF_API pf_status pf_request_step(pf_request* request, pf_token* tokens_out, size_t capacity, size_t* num_tokens_out,
                                 pf_finish* finish_out);
/* Steps several requests of one engine, whose rounds share passes of the target, up to 16 a pass: a draft model or
 * head drafts for all, one pass verifies, and every request writes the tokens that it would write alone, to the bit. A
 * prompt runs a chunk a call, of one request at a time while others decode; calls write nothing until it is through. A
 * failure is its request's own: PF_OK says that all were tried. On a GPU rounds that draft in different ways take
 * turns. PF_INVALID_ARGUMENT, and no step, where a pointer is NULL, a request is named twice or two are of different
 * engines.
 */
PF_API pf_status pf_step_together(pf_step* steps, size_t num_steps);
/* The num_top_logprobs likeliest ids, likeliest first, at each token of the last step: ids_out and logprobs_out
 * [num_tokens, num_top_logprobs], the logprobs as pf_token's. For the first token of an echoed prompt: -1 and NaN.
 * num_tokens is what that step wrote, or what pf_request_stop() kept of it: nothing is written to the arrays before the
 * first step and after one that wrote no token or failed. */
PF_API pf_status pf_request_get_top_logprobs(const pf_request* request, int32_t* ids_out, float* logprobs_out);
/* Ends the request with PF_FINISH_STOP after the first num_tokens of the last step, for stops that only the caller
 * sees, such as strings: the rest was never emitted, in the counters and in the cache. At least 1 token must be kept.
 */
PF_API pf_status pf_request_stop(pf_request* request, size_t num_tokens);
/* Asks the request to end with PF_FINISH_CANCELLED within one round. Any thread. */
PF_API void pf_request_cancel(pf_request* request);
PF_API pf_status pf_request_get_stats(const pf_request* request, pf_stats* stats_out);
/* About the last round. */
PF_API pf_status pf_request_get_decision(const pf_request* request, pf_decision* decision_out);
PF_API void pf_request_close(pf_request* request);

/* For exporters: the scale of each "int4" block of 32 weights. With each candidate, a fraction of the block's value
 * that is furthest from 0, the weights are rounded to -8 .. 7; of the scales that fit these integers best, scales_out,
 * [num_blocks], gets the one of least squared error. Any thread. */
PF_API pf_status pf_fit_int4_scales(const float* blocks, size_t num_blocks, const float* candidates,
                                    size_t num_candidates, float* scales_out);
/* cdef:end */

#ifdef __cplusplus
}
#endif
#endif
