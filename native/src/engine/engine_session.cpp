// Sessions: what the caches hold of a conversation, saved to a file and loaded into another engine of the bundle.
//
// Only full blocks are saved, so that no file has rows of anything but its conversation; the tokens after them, fewer
// than a block, run again.

#include <algorithm>
#include <future>
#include <numeric>

#include "base/platform/text.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"

namespace pilotfish {

std::string Engine::session_layout() const {
  return std::string("pilotfish ") + PF_VERSION + " on " + (device_ ? "cuda" : "cpu") + ", blocks of " +
         std::to_string(kBlockSize) + " tokens";
}

std::vector<Engine::SessionPart> Engine::session_parts(const SessionHeader& session) {
  std::vector<SessionPart> parts{{&target_->cache(), session.num_target_tokens / kBlockSize}};
  if (draft_) parts.push_back({&draft_->cache(), session.num_draft_tokens / kBlockSize});
  if (KvCache* const cache = head_cache()) {
    parts.push_back({cache, num_blocks_for(session.num_head_tokens, kBlockSize)});
  }
  return parts;
}

int32_t Engine::save_session(const std::filesystem::path& path, std::span<const int32_t> ids, std::string_view note) {
  if (!ids.empty()) check_ids(ids);
  if (ids.size() > size_t{PF_MOST_CONTEXT}) {
    fail(PF_INVALID_ARGUMENT, "there are ", ids.size(), " token ids, at most ", int32_t{PF_MOST_CONTEXT}, " are saved");
  }
  if (note.size() > size_t{PF_MOST_SESSION_NOTE}) {
    fail(PF_INVALID_ARGUMENT, "the note has ", note.size(), " bytes, at most ", int32_t{PF_MOST_SESSION_NOTE},
         " are saved");
  }
  SessionHeader session{.bundle = bundle_hash_,
                        .layout = session_layout(),
                        .tokens = {ids.begin(), ids.end()},
                        .note = std::string(note)};
  std::optional<SessionWriter> file;
  {
    const std::lock_guard lock(mutex_);
    const PrefixTree::Match found = prefix_tree_.find(ids);
    const std::vector<int32_t> blocks = prefix_tree_.full_blocks(found);
    const auto num_tokens = static_cast<int32_t>(blocks.size()) * kBlockSize;
    const auto in_blocks = [](int32_t count) { return count / kBlockSize * kBlockSize; };
    session.num_target_tokens = num_tokens;
    session.num_draft_tokens = in_blocks(std::min(found.num_draft_tokens, num_tokens));
    // A head's last slot follows from the token after it too, which is not saved as one that is cached.
    const bool has_all = num_tokens > 0 && found.num_head_tokens >= num_tokens;
    session.num_head_tokens = has_all ? num_tokens - 1 : in_blocks(found.num_head_tokens);
    file.emplace(path, session);
    for (const SessionPart& part : session_parts(session)) {
      part.cache->read(std::span(blocks).first(part.num_blocks),
                       [&](std::span<const std::byte> bytes) { file->write(bytes); });
    }
  }
  file->finish();
  return session.num_target_tokens;
}

// What a file says about itself: first whether it is for this engine, then whether it can be true.
void Engine::check_session(const SessionReader& file) {
  const SessionHeader& session = file.header();
  if (session.bundle != bundle_hash_) {
    fail(PF_PAIR_MISMATCH, file.name(), ": is a session of another bundle, whose manifest.json has the sha256 ",
         session.bundle.substr(0, 64), ", not ", bundle_hash_, ": load it with the bundle that it was saved with");
  }
  if (session.layout != session_layout()) {
    fail(PF_BUNDLE_VERSION, file.name(), ": its caches are of ", session.layout.substr(0, 200), ", the engine's of ",
         session_layout(), ": load it with an engine like the one that saved it");
  }
  const int32_t num_target = session.num_target_tokens, num_draft = session.num_draft_tokens,
                num_head = session.num_head_tokens;
  const bool is_possible = num_target >= 0 && num_target <= static_cast<int64_t>(session.tokens.size()) &&
                           num_target % kBlockSize == 0 && num_draft >= 0 && num_draft <= num_target &&
                           num_draft % kBlockSize == 0 && num_head >= 0 && num_head <= std::max(num_target - 1, 0) &&
                           (num_draft == 0 || draft_) && (num_head == 0 || head_cache());
  if (!is_possible) {
    fail(PF_BUNDLE_CORRUPT, file.name(), ": is no session: of its ", session.tokens.size(), " tokens the caches have ",
         num_target, ", ", num_draft, " and ", num_head);
  }
  for (const int32_t id : session.tokens) {
    if (id < 0 || id >= num_ids_) {
      fail(PF_BUNDLE_CORRUPT, file.name(), ": expected token ids below ", num_ids_, ", found ", id);
    }
  }
  if (num_target > plan_.max_context) {
    fail(PF_CONTEXT_FULL, file.name(), ": has ", num_target, " cached tokens, the context holds ", plan_.max_context,
         ": open the engine with a larger max_context");
  }
  uint64_t num_bytes = 0;
  for (const SessionPart& part : session_parts(session)) num_bytes += part.cache->block_bytes() * part.num_blocks;
  file.require_cache_bytes(num_bytes);
}

SessionHeader Engine::load_session(const std::filesystem::path& path) {
  SessionReader file(path);
  check_session(file);
  const SessionHeader& session = file.header();
  const std::lock_guard lock(mutex_);
  OpenSequence sequence(*this, session.num_target_tokens);
  Reservation room(sequence, session.num_target_tokens);
  const std::vector<SessionPart> parts = session_parts(session);
  const auto blocks_of = [&](const SessionPart& part) { return sequence.block_table().first(part.num_blocks); };
  // The system takes longer to clear pages that nobody has used than reading the file takes: both at once.
  const std::future<void> clearing = std::async(std::launch::async | std::launch::deferred, [&] {
    for (const SessionPart& part : parts) part.cache->make_resident(blocks_of(part));
  });
  try {
    for (const SessionPart& part : parts) {
      const bool is_finite = part.cache->write(blocks_of(part), [&](std::span<std::byte> bytes) { file.read(bytes); });
      if (!is_finite) fail(PF_BUNDLE_CORRUPT, file.name(), ": is no session: its caches hold what are no numbers");
    }
    file.finish();
    clearing.wait();  // it reads the sequence's table, which the tree of prefixes takes over below
  } catch (...) {
    fill_caches(sequence);  // with numbers: what was read goes back to where others write
    throw;
  }
  room.commit(session.num_target_tokens, session.num_draft_tokens);
  sequence.set_num_head_tokens(session.num_head_tokens);
  sequence.retain(session.tokens);
  return session;
}

}  // namespace pilotfish
