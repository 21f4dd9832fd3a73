// What verifies the drafts of a round: passes of the target that requests share, or rounds of a device. Whatever each
// has drafted goes into one pass; what a device drafts and verifies by itself is shared by those that draft alike.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/pass_limits.h"
#include "engine/engine.h"
#include "model/shared_pass.h"
#include "round/step.h"

namespace pilotfish {

class Verifier {
 public:
  // Of the steps that come to has_drafted(). They must outlive it.
  Verifier(Engine& engine, std::span<Step> steps) : engine_(engine), steps_(steps) {}
  Verifier(Verifier&&) = delete;

  // One pass over what requests have drafted, as many of them as it has room for, or one round of a device. False if
  // none is left.
  bool run_next();
  // By the last one.
  std::span<Step* const> verified() const noexcept { return std::span(verified_).first(num_verified_); }

 private:
  // False if the pass is full.
  bool add(Step& step);
  // Whoever shares a round of the device with one that drafts there, or comes before it: all that draft from its source
  // and have room for the longest of their chains, or that grow as large a tree. A round has no more rows for one than
  // for another, and where those do not suffice, all have shorter chains: that is sooner done than several rounds. A
  // tree is as large as it is.
  void gather_alike(const Request::DraftToShare& own);
  // Those whose rows are known: first the ones whose tokens a device chooses.
  void gather_rows();
  void verify_rows();
  // A pass of the host.
  void run_pass();
  // Rounds of the device: of those that draft alike there, or draft nothing, or of one request; and of any rows, whose
  // logits are read where the host chooses the tokens.
  void run_on_device();
  void run_rows_on_device();
  // Starts the first pass of all.
  void begin_heads();
  // After a round in which a row was of no numbers: nothing is made of it, and nothing is shared any more.
  void run_alone();
  bool reads_hidden() const;

  Engine& engine_;
  const std::span<Step> steps_;
  SharedPass& pass_ = engine_.workspace().verified;
  size_t next_ = 0;  // step to verify
  std::array<Step*, kMostTogether> verified_;
  std::array<int32_t, kMostTogether> first_rows_;
  size_t num_verified_ = 0;
  size_t num_chosen_there_ = 0;  // of these, the first ones, whose tokens a device chooses
  int32_t num_chained_ = 0;      // tokens that each drafts in a round of the device
  int32_t num_levels_ = 0;       // of their trees
  bool shares_rows_ = true;      // until a row of a shared pass was of no numbers: whose it is, each finds out alone
};

}  // namespace pilotfish
