// The C API: each body converts its arguments and hands over to the engine or the request under guard(). No logic.

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/cores.h"
#include "base/platform/pages.h"
#include "base/platform/processor.h"
#include "base/platform/text.h"
#include "base/status.h"
#include "device/cuda_info.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "instruction_set.h"
#include "int4_scales.h"
#include "model/provider_kernels.h"
#include "pilotfish.h"
#include "round/round.h"

struct pf_engine {
  // Of this handle and of every open request; whichever closes last destroys the engine.
  std::shared_ptr<pilotfish::Engine> engine;
};

struct pf_request {
  pilotfish::Request request;
};

struct pf_session {
  pilotfish::SessionHeader session;
};

namespace {

using pilotfish::fail;
using pilotfish::guard;

template <typename Pointer>
void require(const Pointer* pointer, const char* name) {
  if (!pointer) fail(PF_INVALID_ARGUMENT, name, " is NULL");
}

}  // namespace

const char* pf_version(void) { return PF_VERSION; }

const char* pf_last_error(void) { return pilotfish::last_error(); }

const char* pf_cpu_kernels(void) {
  const char* name = nullptr;
  guard([&] { name = pilotfish::instruction_set_name(pilotfish::instruction_set()); });
  return name;
}

const char* pf_best_cpu_kernels(void) { return pilotfish::instruction_set_name(pilotfish::best_instruction_set()); }

const char* pf_cpu_name(void) {
  static const std::string name = pilotfish::platform::processor_name();
  return name.c_str();
}

int32_t pf_cpu_cores(void) {
  int32_t num_cores = 1;
  guard([&] { num_cores = pilotfish::num_usable_cores(); });
  return num_cores;
}

pf_status pf_ort_version(const char* ort_library, char* buffer, size_t capacity) {
  return guard([&] {
    require(ort_library, "ort_library");
    require(buffer, "buffer");
    if (capacity == 0) fail(PF_INVALID_ARGUMENT, "capacity is 0, it must hold the terminating zero");
    const std::string version = pilotfish::Ort::version(ort_library);
    const size_t length = std::min(version.size(), capacity - 1);
    std::memcpy(buffer, version.data(), length);
    buffer[length] = '\0';
  });
}

pf_status pf_cuda_describe(int32_t device_index, const char* ort_library, int32_t measure, pf_cuda_info* info_out) {
  return guard([&] {
    require(info_out, "info_out");
    *info_out = pilotfish::describe_cuda(device_index, measure != 0);
    if (!ort_library) return;
    const auto ort = pilotfish::Ort::open(ort_library);
    ort->check_cuda_provider(device_index);
    info_out->has_provider_kernels = pilotfish::provider_kernels_run(*ort, device_index) ? 1 : 0;
  });
}

void pf_engine_options_init(pf_engine_options* options) {
  if (options) *options = pilotfish::default_engine_options();
}

pf_status pf_engine_open(const char* bundle, const pf_engine_options* options, pf_engine** engine_out) {
  return guard([&] {
    require(bundle, "bundle");
    require(options, "options");
    require(engine_out, "engine_out");
    // Before the weights come, and after ONNX Runtime has dropped what it read its graphs with.
    pilotfish::platform::return_free_heap();
    *engine_out =
        new pf_engine{std::make_shared<pilotfish::Engine>(pilotfish::platform::path_of_text(bundle), *options)};
    pilotfish::platform::return_free_heap();
  });
}

void pf_engine_close(pf_engine* engine) { delete engine; }

pf_status pf_engine_get_info(const pf_engine* engine, pf_engine_info* info_out) {
  return guard([&] {
    require(engine, "engine");
    require(info_out, "info_out");
    engine->engine->check();
    *info_out = engine->engine->info();
  });
}

pf_status pf_plan(const char* bundle, const pf_engine_options* options, pf_engine_info* info_out) {
  return guard([&] {
    require(bundle, "bundle");
    require(options, "options");
    require(info_out, "info_out");
    *info_out = pilotfish::Engine::plan(pilotfish::platform::path_of_text(bundle), *options);
  });
}

pf_status pf_engine_logits(pf_engine* engine, int32_t model, const int32_t* ids, size_t num_ids, float* logits_out) {
  return guard([&] {
    require(engine, "engine");
    require(ids, "ids");
    require(logits_out, "logits_out");
    engine->engine->compute_logits(model, {ids, num_ids}, logits_out);
  });
}

pf_status pf_engine_time_pass(pf_engine* engine, int32_t model, int32_t num_rows, int32_t context, int32_t num_repeats,
                              double* seconds_out) {
  return guard([&] {
    require(engine, "engine");
    require(seconds_out, "seconds_out");
    if (num_repeats < 1) fail(PF_INVALID_ARGUMENT, "num_repeats is ", num_repeats, ", at least 1 is needed");
    engine->engine->time_pass(model, num_rows, context, {seconds_out, static_cast<size_t>(num_repeats)});
  });
}

pf_status pf_engine_get_cost(const pf_engine* engine, int32_t model, int32_t num_rows, int32_t context,
                             double* seconds_out) {
  return guard([&] {
    require(engine, "engine");
    require(seconds_out, "seconds_out");
    *seconds_out = engine->engine->cost(model, num_rows, context);
  });
}

pf_status pf_engine_save_lookup(pf_engine* engine) {
  return guard([&] {
    require(engine, "engine");
    engine->engine->save_lookup();
  });
}

pf_status pf_engine_save_session(pf_engine* engine, const char* path, const int32_t* ids, size_t num_ids,
                                 const char* note, size_t note_bytes, int32_t* num_tokens_out) {
  return guard([&] {
    require(engine, "engine");
    require(path, "path");
    if (num_ids > 0) require(ids, "ids");
    if (note_bytes > 0) require(note, "note");
    require(num_tokens_out, "num_tokens_out");
    *num_tokens_out = engine->engine->save_session(pilotfish::platform::path_of_text(path), {ids, num_ids},
                                                   note ? std::string_view(note, note_bytes) : std::string_view());
  });
}

pf_status pf_engine_load_session(pf_engine* engine, const char* path, pf_session** session_out) {
  return guard([&] {
    require(engine, "engine");
    require(path, "path");
    require(session_out, "session_out");
    *session_out = new pf_session{engine->engine->load_session(pilotfish::platform::path_of_text(path))};
  });
}

const int32_t* pf_session_ids(const pf_session* session, size_t* num_ids_out) {
  *num_ids_out = session->session.tokens.size();
  return session->session.tokens.data();
}

const char* pf_session_note(const pf_session* session, size_t* note_bytes_out) {
  *note_bytes_out = session->session.note.size();
  return session->session.note.data();
}

int32_t pf_session_num_cached(const pf_session* session) { return session->session.num_target_tokens; }

void pf_session_close(pf_session* session) { delete session; }

void pf_generate_options_init(pf_generate_options* options) {
  if (options) *options = pilotfish::default_generate_options();
}

pf_status pf_request_open(pf_engine* engine, const int32_t* ids, size_t num_ids, const pf_generate_options* options,
                          pf_request** request_out) {
  return guard([&] {
    require(engine, "engine");
    require(ids, "ids");
    require(options, "options");
    require(request_out, "request_out");
    pilotfish::check_options(*options, engine->engine->options().max_draft_tokens);
    *request_out = new pf_request{{engine->engine, {ids, num_ids}, *options}};
  });
}

pf_status pf_request_step(pf_request* request, pf_token* tokens_out, size_t capacity, size_t* num_tokens_out,
                          pf_finish* finish_out) {
  return guard([&] {
    require(request, "request");
    require(tokens_out, "tokens_out");
    require(num_tokens_out, "num_tokens_out");
    require(finish_out, "finish_out");
    pilotfish::Step step{.request = &request->request, .tokens_out = {tokens_out, capacity}, .in_chunks = false};
    pilotfish::run_rounds({&step, 1});
    if (step.status != PF_OK) fail(step.status, request->request.error());
    *num_tokens_out = step.num_tokens;
    *finish_out = step.finish;
  });
}

pf_status pf_step_together(pf_step* steps, size_t num_steps) {
  return guard([&] {
    require(steps, "steps");
    std::vector<pilotfish::Step> batch;
    batch.reserve(num_steps);
    for (pf_step& step : std::span(steps, num_steps)) {
      require(step.request, "request");
      require(step.tokens_out, "tokens_out");
      batch.push_back({&step.request->request, {step.tokens_out, step.capacity}, true});
    }
    pilotfish::run_rounds(batch);
    for (size_t i = 0; i < num_steps; ++i) {
      steps[i].num_tokens = batch[i].num_tokens;
      steps[i].finish = batch[i].finish;
      steps[i].status = batch[i].status;
      steps[i].error = batch[i].status == PF_OK ? nullptr : batch[i].request->error();
    }
  });
}

void pf_request_cancel(pf_request* request) {
  if (request) request->request.cancel();
}

pf_status pf_request_get_stats(const pf_request* request, pf_stats* stats_out) {
  return guard([&] {
    require(request, "request");
    require(stats_out, "stats_out");
    *stats_out = request->request.stats();
  });
}

pf_status pf_request_get_decision(const pf_request* request, pf_decision* decision_out) {
  return guard([&] {
    require(request, "request");
    require(decision_out, "decision_out");
    *decision_out = request->request.decision();
  });
}

pf_status pf_request_get_top_logprobs(const pf_request* request, int32_t* ids_out, float* logprobs_out) {
  return guard([&] {
    require(request, "request");
    require(ids_out, "ids_out");
    require(logprobs_out, "logprobs_out");
    request->request.report().copy_to(ids_out, logprobs_out);
  });
}

pf_status pf_request_stop(pf_request* request, size_t num_tokens) {
  return guard([&] {
    require(request, "request");
    request->request.stop(num_tokens);
  });
}

void pf_request_close(pf_request* request) { delete request; }

pf_status pf_fit_int4_scales(const float* blocks, size_t num_blocks, const float* candidates, size_t num_candidates,
                             float* scales_out) {
  return guard([&] {
    require(blocks, "blocks");
    require(candidates, "candidates");
    require(scales_out, "scales_out");
    constexpr size_t kColumns = 32;
    pilotfish::fit_int4_scales({blocks, num_blocks * kColumns}, {candidates, num_candidates}, {scales_out, num_blocks});
  });
}
