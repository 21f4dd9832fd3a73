// The first steps of a request: its prompt runs, in large passes that end in the first token, or, when it is echoed, in
// small ones that keep the logits of every row.

#include <algorithm>
#include <array>
#include <functional>

#include "base/timer.h"
#include "model/prefill.h"
#include "round/request.h"

namespace pilotfish {

size_t Request::first_token(bool in_chunks, int32_t most_rows) {
  if (num_prefilled_ < 0) num_prefilled_ = speculation_.prefill_begin(*sequence_);
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  size_t num_emitted = 0;
  do {
    num_emitted = run_chunk(std::min(num_prefilled_ + most_rows, num_tokens));
  } while (!in_chunks && finish_ == PF_FINISH_NONE && num_prefilled_ < num_tokens);
  return num_emitted;
}

// Of the prompt, up to token `end`. What was run stays, whatever becomes of the rest.
size_t Request::run_chunk(int32_t end) {
  Reservation room(*sequence_, std::max(end, sequence_->num_target_tokens()));
  const auto chunk = std::span<const int32_t>(tokens_).first(end);
  const bool reads_ahead = speculation_.reads_ahead(stats_.num_prompt_tokens);
  std::function<void()> meanwhile;
  if (reads_ahead) meanwhile = [&] { speculation_.read_ahead(chunk, sequence_->block_table(), stats_); };
  std::optional<Logits> logits;
  {
    const Timer timer(stats_.prefill_seconds);
    std::optional<HiddenReader> reader;
    if (speculation_.reads_hidden()) reader = speculation_.hidden_reader(tokens_, sequence_->block_table());
    logits = pilotfish::prefill(engine_->target(), sequence_->block_table(), chunk, num_prefilled_,
                                end - num_prefilled_, cancelled_, reader ? &*reader : nullptr, meanwhile);
  }
  if (!logits) {
    finish_ = PF_FINISH_CANCELLED;
    return 0;
  }
  stats_.num_prefilled_target += end - num_prefilled_;
  num_prefilled_ = end;
  const size_t num_emitted = end == static_cast<int32_t>(tokens_.size()) ? emit_first(*logits, 0) : 0;
  room.commit(std::max(end, sequence_->num_target_tokens()),
              reads_ahead ? speculation_.num_draft_retained() : sequence_->num_draft_tokens());
  return num_emitted;
}

// One pass: row i gives the logprob of the prompt's token i + 1, and the last one the first new token.
size_t Request::echo_prompt() {
  const auto write = [&](size_t index, int32_t id, float logprob) {
    tokens_out_[index] = {
        .id = id, .origin = PF_ORIGIN_PROMPT, .logprob = logprob, .seconds = Timer::between(opened_, Clock::now())};
  };
  if (num_echoed_ == 0) {
    write(0, tokens_[0], report_.add_unknown());
    num_echoed_ = 1;
    return 1;
  }
  const int32_t num_cached = sequence_->num_target_tokens();
  const auto num_tokens = static_cast<int32_t>(tokens_.size());
  const auto capacity = static_cast<int32_t>(tokens_out_.size());
  // A token is written for each row: the last row's is the first new one.
  const int32_t num_rows = std::min({capacity, report_.max_tokens(), num_tokens - num_cached});
  Reservation room(*sequence_, num_cached + num_rows);
  const Logits logits = run_prompt(num_cached, num_rows);
  size_t num_emitted = 0;
  for (; num_echoed_ < std::min(num_tokens, num_cached + num_rows + 1); ++num_echoed_, ++num_emitted) {
    const int32_t id = tokens_[num_echoed_];
    write(num_emitted, id, report_.add(logits.row(num_echoed_ - 1 - num_cached), id));
  }
  if (num_cached + num_rows == num_tokens) {
    num_emitted +=
        emit_first({.data = logits.row(num_rows - 1).data(), .num_rows = 1, .width = logits.width}, num_emitted);
  }
  room.commit(num_cached + num_rows, 0);
  return num_emitted;
}

size_t Request::emit_first(const Logits& logits, size_t num_before) {
  drafted().clear({0, 0}, 0);
  return emit_tokens({accepted_of(logits), logits, {}}, tokens_out_.subspan(num_before));
}

Logits Request::run_prompt(int32_t num_cached, int32_t num_rows) {
  const Timer timer(stats_.prefill_seconds);
  const bool reads_hidden = speculation_.reads_hidden();
  const Logits logits = engine_->target().forward({.ids = std::span(tokens_).subspan(num_cached, num_rows),
                                                   .positions = {},
                                                   .tree_mask = {},
                                                   .block_table = sequence_->block_table(),
                                                   .context = num_cached,
                                                   .num_outputs = num_rows,
                                                   .num_hidden = reads_hidden ? num_rows : 0});
  if (reads_hidden) {
    speculation_.hidden_reader(tokens_, sequence_->block_table()).read(engine_->target().hidden(), num_cached);
  }
  stats_.num_prefilled_target += num_rows;
  return logits;
}

}  // namespace pilotfish
