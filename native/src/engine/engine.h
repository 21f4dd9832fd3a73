// A loaded bundle: the models, the cache blocks and what all requests share. Requests step one at a time under its
// mutex.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/manifest.h"
#include "device/cuda_device.h"
#include "draft/draft.h"
#include "draft/head_drafter.h"
#include "draft/model_drafter.h"
#include "draft/model_rows.h"
#include "engine/device_round.h"
#include "engine/session_file.h"
#include "lookup/lookup_store.h"
#include "memory/kv_blocks.h"
#include "memory/prefix_tree.h"
#include "model/head.h"
#include "model/model.h"
#include "model/ort.h"
#include "model/shared_pass.h"
#include "pilotfish.h"
#include "plan/draft_memory.h"
#include "plan/prompt_pace.h"
#include "plan/round_costs.h"
#include "plan/shared_drafting.h"
#include "sampling/sampler.h"

namespace pilotfish {

class LoadProgress;

// Buffers of a round, sized for the largest one. Valid under the engine's mutex only.
struct Workspace {
  Workspace(int32_t num_ids, const pf_engine_options& options);

  std::vector<Draft> drafts;  // one a request of those that share a pass
  SharedPass verified;        // rows of the target
  SharedPass drafted;         // of the draft model
  std::vector<Proposal> proposals;
  std::vector<DeviceRound::Member> members;  // of a round on the device
  std::vector<HeadBegin> head_begins;        // of the same
  std::vector<RoundSettings> settings;       // and
  std::vector<Sharer> sharers;
  Distribution distribution;
  Sampler sampler;
};

class Engine {
 public:
  Engine(const std::filesystem::path& bundle, const pf_engine_options& options);
  Engine(Engine&&) = delete;

  // The same checks and numbers as the constructor's, from the manifest alone.
  // A GPU that is not here is planned for without knowing what is free on it.
  static pf_engine_info plan(const std::filesystem::path& bundle, const pf_engine_options& options);

  pf_engine_info info() const;
  void check() const;
  // logits_out: [ids.size(), vocab_size of the target]; -inf where a draft scores fewer ids.
  void compute_logits(int32_t model, std::span<const int32_t> ids, float* logits_out);
  void time_pass(int32_t model, int32_t num_rows, int32_t context, std::span<double> seconds_out);
  double cost(int32_t model, int32_t num_rows, int32_t context) const;
  void save_lookup();
  // Saves what is cached of the beginning of a conversation, in whole blocks, and a note; returns how many tokens.
  int32_t save_session(const std::filesystem::path& path, std::span<const int32_t> ids, std::string_view note);
  // Keeps it as what an ended request has left, and returns what stood beside it.
  SessionHeader load_session(const std::filesystem::path& path);

  // What follows is for Request.
  void check_ids(std::span<const int32_t> ids) const;
  std::mutex& mutex() const noexcept { return mutex_; }
  const pf_engine_options& options() const noexcept { return options_; }
  int32_t max_context() const noexcept { return plan_.max_context; }
  int32_t num_ids() const noexcept { return num_ids_; }
  std::span<const int32_t> eos_ids() const noexcept { return eos_ids_; }
  Model& target() noexcept { return *target_; }
  // nullptr when the bundle has no draft.
  Model* draft() noexcept { return draft_.get(); }
  // Of a source that runs a model, which the bundle must have.
  Drafter& drafter(Source source) noexcept {
    return source == Source::kHead ? static_cast<Drafter&>(*head_drafter_) : *drafter_;
  }
  // nullptr when the bundle has no head.
  HeadDrafter* head_drafter() noexcept { return head_drafter_.get(); }
  const RoundCosts& costs() const noexcept { return costs_; }
  // What requests leave to each other about drafting. Valid under the mutex only.
  DraftMemory& draft_memory() noexcept { return draft_memory_; }
  // Of prompts that run beside others. The same.
  PromptPace& prompt_pace() noexcept { return *prompt_pace_; }
  // What those draft that share a device's rounds. Valid under the mutex only.
  SharedDrafting& shared_drafting() noexcept { return shared_drafting_; }
  // Rounds on the device; nullptr on the CPU.
  DeviceRound* device_round() noexcept { return device_round_ ? &*device_round_ : nullptr; }
  // Whether a request's tokens are chosen in them.
  bool chooses_on_device(const pf_generate_options& options) const noexcept;
  // Earlier outputs to look up drafts in; nullptr without a store.
  const LookupIndex* lookup_texts() const noexcept { return store_ ? &store_->index() : nullptr; }
  // Adds an output to the store, if there is one.
  void remember(std::span<const int32_t> output) noexcept;
  Workspace& workspace() noexcept { return workspace_; }
  // The mutex must be held by whoever calls one of these: what is cached of the beginning of a prompt,
  PrefixTree::Match find_prefix(std::span<const int32_t> prompt) const noexcept { return prefix_tree_.find(prompt); }
  // and a cache for max_tokens, known to check() until it is destroyed, which starts with that. The last num_own of its
  // whole blocks are for it alone.
  class OpenSequence : public Sequence {
   public:
    OpenSequence(Engine& engine, int32_t max_tokens, const PrefixTree::Match& prefix = {}, int32_t num_own = 0);
    ~OpenSequence();
    // Ends the sequence and keeps what is cached of `tokens`, which begin with all that it has of the target.
    void retain(std::span<const int32_t> tokens) noexcept;

   private:
    Engine& engine_;
  };

 private:
  Engine(const pf_engine_options& options, Manifest manifest, LoadProgress&& progress);

  // They share one ONNX Runtime with its threads, and the device with its stream: what one enqueues follows what the
  // others did.
  void load_models(const Manifest& manifest, LoadProgress& progress);
  // Once there is a session of the draft model.
  void start_drafting();
  Model& model(int32_t which);
  class PassRunner;  // in engine_measure.cpp
  RoundCosts find_costs(const Manifest& manifest, LoadProgress& progress);
  RoundCosts measure();
  // Records the device's rounds.
  void rehearse_rounds();
  // What no pass has written is finite afterwards.
  void fill_caches(const Sequence& sequence);
  // A cache, and the first blocks of a session that are saved of it.
  struct SessionPart {
    KvCache* cache;
    int32_t num_blocks;
  };
  std::vector<SessionPart> session_parts(const SessionHeader& session);
  std::string session_layout() const;
  void check_session(const SessionReader& file);
  // nullptr without a head that has one.
  KvCache* head_cache() noexcept { return head_drafter_ ? head_drafter_->cache() : nullptr; }
  CachedPrefix adopt(const PrefixTree::Match& prefix, int32_t max_tokens, int32_t num_own);

  const std::shared_ptr<CudaDevice> device_;  // of both models too; nullptr on the CPU
  const pf_engine_info plan_;
  const pf_engine_options options_;
  const std::string bundle_hash_;
  const int32_t num_ids_;  // ids that a token may have: the tokenizer's, without the vocabulary's padding
  const std::vector<int32_t> eos_ids_;
  mutable std::mutex mutex_;
  std::unique_ptr<Model> target_;
  std::unique_ptr<Model> draft_;
  std::optional<LikelyRows> likely_rows_;  // on a device
  std::optional<ModelRows> draft_rows_;
  std::optional<ModelDrafter> drafter_;
  std::unique_ptr<Head> head_;
  std::unique_ptr<HeadDrafter> head_drafter_;
  std::optional<DeviceRound> device_round_;
  BlockPool blocks_;
  PrefixTree prefix_tree_;
  std::vector<const Sequence*> sequences_;
  Workspace workspace_;
  std::optional<LookupStore> store_;
  RoundCosts costs_;
  DraftMemory draft_memory_;
  std::optional<PromptPace> prompt_pace_;
  SharedDrafting shared_drafting_;
};

}  // namespace pilotfish
