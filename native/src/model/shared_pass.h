// Rows of several sequences that go through a model together: to verify what their requests drafted, or to draft.
#pragma once

#include <cstdint>
#include <vector>

#include "device/chain_lengths.h"
#include "model/model.h"

namespace pilotfish {

class SharedPass {
 public:
  // Takes all the memory that it will need.
  SharedPass(int32_t max_rows, int32_t max_outputs, int32_t max_seqs);

  bool has_room(int32_t num_rows, int32_t num_outputs) const noexcept;
  int32_t num_rows() const noexcept { return static_cast<int32_t>(ids_.size()); }
  int32_t num_sequences() const noexcept { return static_cast<int32_t>(sequences_.size()); }
  // That the sequence with most rows has.
  int32_t longest() const noexcept;
  // Appends the rows of a pass over one sequence, whose block table must stay where it is; returns the index of its
  // first output.
  int32_t add(const Pass& rows);
  // Runs the rows and returns the logits of the outputs. With `gives_hidden` the model's hidden() are those of all
  // rows.
  Logits forward(Model& model, bool gives_hidden);
  // The same on a device without waiting, filled up to num_rows rows by rows of no sequence.
  void start(Model& model, int32_t num_rows);
  // For a device, whose passes are recorded by their sizes: adds rows of no sequence to those of several, with outputs,
  // which repeat the first one, if all rows have some.
  SharedRows fill_up();
  // What was added.
  Pass pass() const noexcept;
  void clear() noexcept;

 private:
  const int32_t max_rows_;
  const int32_t max_outputs_;
  const int32_t max_seqs_;
  std::vector<int32_t> ids_, positions_, output_rows_;
  std::vector<uint64_t> masks_;
  std::vector<PassSequence> sequences_;
  bool is_causal_ = true;  // so are all of them
};

}  // namespace pilotfish
