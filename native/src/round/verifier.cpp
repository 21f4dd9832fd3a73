#include "round/verifier.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/status.h"
#include "base/timer.h"

namespace pilotfish {

bool Verifier::run_next() {
  num_verified_ = num_chosen_there_ = 0;
  num_chained_ = num_levels_ = 0;
  pass_.clear();
  while (next_ < steps_.size() && !steps_[next_].request->has_drafted()) ++next_;
  if (next_ == steps_.size()) return false;
  if (const auto draft = steps_[next_].request->draft_to_share()) {
    gather_alike(*draft);
    run_on_device();
    return true;
  }
  gather_rows();
  if (num_verified_ == 0) return false;
  verify_rows();
  return true;
}

bool Verifier::add(Step& step) {
  if (!shares_rows_ && num_verified_ > 0) return false;
  Request& request = *step.request;
  TreePass rows = request.rows_to_verify();
  if (!pass_.has_room(rows.num_rows(), rows.num_rows())) return false;
  first_rows_[num_verified_] = pass_.add(rows.at(request.block_table(), request.context()));
  verified_[num_verified_++] = &step;
  return true;
}

void Verifier::gather_alike(const Request::DraftToShare& own) {
  if (!shares_rows_) {
    verified_[num_verified_++] = &steps_[next_];
    return;
  }
  const DeviceRound& device = *engine_.device_round();
  const auto draft_of = [](const Step& step) {
    return step.request->has_drafted() ? step.request->draft_to_share() : std::nullopt;
  };
  const bool is_tree = own.num_levels > 0;
  const auto is_alike = [&](const auto& draft) {
    return draft && draft->source == own.source && draft->num_levels == own.num_levels &&
           (!is_tree || draft->num_drafted == own.num_drafted);
  };
  int32_t num_alike = 0, longest = 0;
  for (const Step& step : steps_) {
    const auto draft = draft_of(step);
    if (!is_alike(draft)) continue;
    ++num_alike;
    longest = std::max(longest, draft->num_drafted);
  }
  num_levels_ = own.num_levels;
  num_chained_ = is_tree ? longest : std::min(longest, device.most_drafted(num_alike));
  const auto most = size_t(std::max(1, device.most_members(num_chained_, is_tree)));
  for (Step& step : steps_) {
    const auto draft = draft_of(step);
    if (num_verified_ < most && is_alike(draft) && draft->most >= num_chained_) verified_[num_verified_++] = &step;
  }
}

void Verifier::gather_rows() {
  for (const bool is_chosen_there : {true, false}) {
    for (Step& step : steps_) {
      const Request& request = *step.request;
      if (!request.has_drafted() || request.chooses_on_device() != is_chosen_there) continue;
      if (!request.draft_to_share() && !add(step)) break;
    }
    if (is_chosen_there) num_chosen_there_ = num_verified_;
  }
}

void Verifier::verify_rows() {
  const auto is_plain = [](const Step* step) { return step->request->is_plain(); };
  if (num_verified_ == 1 || !engine_.device_round()) return num_chosen_there_ > 0 ? run_on_device() : run_pass();
  if (num_chosen_there_ == num_verified_ && std::ranges::all_of(verified(), is_plain)) return run_on_device();
  run_rows_on_device();
}

void Verifier::run_on_device() {
  if (num_verified_ == 1) return attempt(*verified_[0], [&] { verified_[0]->request->verify_on_device(); });
  std::vector<DeviceRound::Member>& members = engine_.workspace().members;
  members.clear();
  for (const Step* const step : verified()) members.push_back(step->request->member_of_round(num_chained_));
  std::span<const RoundOutcome> outcomes;
  const bool begins_heads = num_chained_ > 0 && members[0].chain.source == Source::kHead;
  const auto start = Timer::Clock::now();
  const pf_status status = guard([&] {
    if (begins_heads) begin_heads();
    outcomes = engine_.device_round()->run_shared(members, num_chained_, num_levels_);
  });
  const double seconds = Timer::between(start, Timer::Clock::now());
  if (status == PF_BUNDLE_CORRUPT) {
    for (const Step* const step : verified()) {
      if (begins_heads) step->request->take_back_head();
    }
    return run_alone();
  }
  const auto num_sharing = static_cast<int32_t>(num_verified_);
  for (int32_t i = 0; i < num_sharing; ++i) {
    Step& step = *verified_[i];
    if (status != PF_OK) {
      fail(step, status);
    } else {
      const Request::DeviceVerified shared{outcomes[i], i * (num_chained_ + 1), num_sharing, num_chained_, seconds};
      attempt(step, [&] { step.request->verify_on_device(&shared); });
    }
  }
}

void Verifier::run_rows_on_device() {
  std::vector<RoundSettings>& settings = engine_.workspace().settings;
  settings.clear();
  for (const Step* const step : verified()) settings.push_back(step->request->settings_of_round());
  const int32_t first_read = num_chosen_there_ < num_verified_ ? first_rows_[num_chosen_there_] : pass_.num_rows();
  std::optional<DeviceRound::Verified> found;
  const auto start = Timer::Clock::now();
  const pf_status status =
      guard([&] { found.emplace(engine_.device_round()->verify_shared(pass_, settings, reads_hidden(), first_read)); });
  const double seconds = Timer::between(start, Timer::Clock::now());
  if (status == PF_BUNDLE_CORRUPT) return run_alone();
  for (size_t i = 0; i < num_verified_; ++i) {
    Step& step = *verified_[i];
    if (status != PF_OK) {
      fail(step, status);
    } else if (i < num_chosen_there_) {
      step.request->verify_on_device({found->outcome, first_rows_[i], seconds});
    } else {
      step.request->verify({found->logits.from(first_rows_[i] - first_read), first_rows_[i], seconds});
    }
  }
}

void Verifier::run_alone() {
  shares_rows_ = false;
  num_verified_ = 0;
}

void Verifier::begin_heads() {
  std::vector<HeadBegin>& begins = engine_.workspace().head_begins;
  begins.clear();
  for (const Step* const step : verified()) begins.push_back(step->request->head_begin());
  engine_.head_drafter()->begin_on_device(begins);
}

void Verifier::run_pass() {
  Logits logits;
  const auto start = Timer::Clock::now();
  const pf_status status = guard([&] { logits = pass_.forward(engine_.target(), reads_hidden()); });
  const double seconds = Timer::between(start, Timer::Clock::now());
  for (size_t i = 0; i < num_verified_; ++i) {
    Step& step = *verified_[i];
    if (status == PF_OK) {
      step.request->verify({logits.from(first_rows_[i]), first_rows_[i], seconds});
    } else {
      fail(step, status);
    }
  }
}

bool Verifier::reads_hidden() const {
  return std::ranges::any_of(verified(), [](const Step* step) { return step->request->reads_hidden(); });
}

}  // namespace pilotfish
