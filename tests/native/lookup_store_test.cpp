#include "lookup/lookup_store.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "check.h"

namespace {

using pilotfish::LookupIndex;
using pilotfish::LookupStore;

constexpr int32_t kNumIds = 100;
constexpr uint64_t kBytes = 1 << 16;
const std::string kTokenizer(64, 'a');

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("pilotfish-store-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  Folder(Folder&&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::filesystem::path file() const { return path_ / "deeper" / "app.store"; }

 private:
  std::filesystem::path path_;
};

std::vector<int32_t> text(int32_t first, int32_t length) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < length; ++i) ids.push_back((first + i) % kNumIds);
  return ids;
}

void write(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

void test_texts_survive() {
  const Folder folder;
  {
    LookupStore store(folder.file(), kTokenizer, kNumIds, kBytes);
    CHECK_EQ(store.index().size(), 0);
    store.save();
    CHECK(!std::filesystem::exists(folder.file()));  // nothing to write
    store.add(text(3, 10));
    store.add(text(3, 10));  // there already
    store.add({});
    store.add(text(50, 4));
    CHECK_EQ(store.index().size(), 16);
    store.save();
  }
  LookupStore store(folder.file(), kTokenizer, kNumIds, kBytes);
  std::vector<int32_t> expected = text(3, 10);
  expected.push_back(LookupIndex::kNone);
  for (const int32_t id : text(50, 4)) expected.push_back(id);
  expected.push_back(LookupIndex::kNone);
  const auto found = store.index().tokens();
  CHECK(std::vector<int32_t>(found.begin(), found.end()) == expected);
  std::vector<LookupIndex::Match> room(2);
  CHECK_EQ(store.index().find(text(3, 5), room).size(), 1u);
}

void test_the_latest_texts_stay() {
  const Folder folder;
  LookupStore store(folder.file(), kTokenizer, kNumIds, LookupStore::kLeastBytes);
  const int32_t most = store.index().max_tokens();
  for (int32_t i = 0; i < 200; ++i) store.add(text(i, 50));
  CHECK(store.index().size() <= most);
  CHECK(store.index().size() >= most / 2);
  const std::vector<int32_t> last = text(199, 50);
  const auto found = store.index().tokens();
  CHECK(std::vector<int32_t>(found.end() - 51, found.end() - 1) == last);
  store.add(text(0, 10 * most));
  CHECK_EQ(store.index().size(), most);
  store.save();
  CHECK(std::filesystem::file_size(folder.file()) <= LookupStore::kLeastBytes);
}

void test_a_store_that_has_shrunk_keeps_its_end() {
  const Folder folder;
  LookupStore large(folder.file(), kTokenizer, kNumIds, kBytes);
  large.add(text(0, 5000));
  large.save();
  LookupStore small(folder.file(), kTokenizer, kNumIds, LookupStore::kLeastBytes);
  CHECK_EQ(small.index().size(), small.index().max_tokens());
  CHECK_EQ(small.index().tokens().back(), LookupIndex::kNone);
}

void test_what_is_refused() {
  const Folder folder;
  const auto open = [&](const std::string& tokenizer, int32_t num_ids) {
    LookupStore(folder.file(), tokenizer, num_ids, kBytes);
  };
  LookupStore store(folder.file(), kTokenizer, kNumIds, kBytes);
  store.add(text(0, 100));
  store.save();
  const std::string good = *pilotfish::read_file(folder.file(), kBytes);
  check::expect_error(__FILE__, __LINE__, PF_PAIR_MISMATCH, "the bundle's is bbbb",
                      [&] { open(std::string(64, 'b'), kNumIds); });
  check::expect_error(__FILE__, __LINE__, PF_BUNDLE_CORRUPT, "expected ids below 50", [&] { open(kTokenizer, 50); });
  for (size_t length : {size_t{0}, size_t{10}, good.size() - 1}) {
    write(folder.file(), good.substr(0, length));
    check::expect_error(__FILE__, __LINE__, PF_BUNDLE_CORRUPT, "cut short", [&] { open(kTokenizer, kNumIds); });
  }
  std::string damaged = good;
  damaged.back() ^= 1;
  write(folder.file(), damaged);
  check::expect_error(__FILE__, __LINE__, PF_BUNDLE_CORRUPT, "expected sha256", [&] { open(kTokenizer, kNumIds); });
}

// Whether the store has the text.
bool has(const LookupStore& store, const std::vector<int32_t>& wanted) {
  const auto found = store.index().tokens();
  return std::search(found.begin(), found.end(), wanted.begin(), wanted.end()) != found.end();
}

void test_two_stores_of_one_file_keep_both_texts() {
  const Folder folder;
  LookupStore first(folder.file(), kTokenizer, kNumIds, kBytes), second(folder.file(), kTokenizer, kNumIds, kBytes);
  first.add(text(3, 10));
  second.add(text(50, 7));
  second.add(text(20, 5));
  first.save();
  second.save();
  first.add(text(70, 9));
  first.save();
  const LookupStore read(folder.file(), kTokenizer, kNumIds, kBytes);
  CHECK_EQ(read.index().size(), 11 + 8 + 6 + 10);
  for (const auto& [begin, length] : {std::pair{3, 10}, {50, 7}, {20, 5}, {70, 9}}) {
    CHECK(has(first, text(begin, length)) && has(read, text(begin, length)));
  }
  CHECK(!has(second, text(70, 9)));
}

void test_processes_that_save_at_once_lose_nothing() {
  constexpr int32_t kNumProcesses = 4, kNumTexts = 10;
  const Folder folder;
  for (int32_t process = 0; process < kNumProcesses; ++process) {
    if (::fork() != 0) continue;
    LookupStore store(folder.file(), kTokenizer, kNumIds, kBytes);
    for (int32_t i = 0; i < kNumTexts; ++i) {
      store.add(std::vector<int32_t>{process, 10 + i, 50, process});
      store.save();
    }
    ::_exit(0);
  }
  for (int32_t process = 0; process < kNumProcesses; ++process) {
    int status = -1;
    CHECK(::wait(&status) > 0 && status == 0);
  }
  const LookupStore store(folder.file(), kTokenizer, kNumIds, kBytes);
  CHECK_EQ(store.index().size(), kNumProcesses * kNumTexts * 5);
  for (int32_t process = 0; process < kNumProcesses; ++process) {
    for (int32_t i = 0; i < kNumTexts; ++i) CHECK(has(store, {process, 10 + i, 50, process}));
  }
}

void test_what_others_saved_is_bounded_too() {
  const Folder folder;
  LookupStore small(folder.file(), kTokenizer, kNumIds, LookupStore::kLeastBytes);
  LookupStore large(folder.file(), kTokenizer, kNumIds, kBytes);
  large.add(text(0, 5000));
  large.save();
  small.add(text(7, 20));
  small.save();
  CHECK(small.index().size() <= small.index().max_tokens());
  CHECK(has(small, text(7, 20)));
  CHECK(std::filesystem::file_size(folder.file()) <= LookupStore::kLeastBytes);
}

void test_a_file_that_became_another_one_stays() {
  const Folder folder;
  LookupStore store(folder.file(), kTokenizer, kNumIds, kBytes);
  store.add(text(3, 10));
  LookupStore other(folder.file(), std::string(64, 'b'), kNumIds, kBytes);
  other.add(text(3, 10));
  other.save();
  CHECK_ERROR(PF_PAIR_MISMATCH, "the bundle's is aaaa", store.save());
  CHECK(has(store, text(3, 10)));
  LookupStore(folder.file(), std::string(64, 'b'), kNumIds, kBytes);
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat found;
  CHECK_EQ(::stat(path.c_str(), &found), 0);
  return found.st_mode & 0777;
}

void test_only_the_owner_may_read() {
  const Folder folder;
  const std::filesystem::path file = folder.file(), link = file.parent_path() / "link";
  pilotfish::write_file(file, "one");
  CHECK_EQ(mode_of(file), mode_t{0600});
  ::chmod(file.c_str(), 0400);
  pilotfish::write_file(file, "two");
  CHECK_EQ(mode_of(file), mode_t{0400});
  ::chmod(file.c_str(), 0664);
  std::filesystem::create_symlink("app.store", link);
  pilotfish::write_file(link, "three");
  CHECK(std::filesystem::is_symlink(link));
  CHECK_EQ(*pilotfish::read_file(file, 9), "three");
  CHECK_EQ(mode_of(file), mode_t{0600});
  std::filesystem::remove(file);
  CHECK_ERROR(PF_FILE_MISSING, "a link to nothing", pilotfish::write_file(link, "four"));
  CHECK_EQ(::mkfifo(file.c_str(), 0600), 0);
  CHECK_ERROR(PF_FILE_MISSING, "it is no file", pilotfish::write_file(file, "five"));
  CHECK_ERROR(PF_FILE_MISSING, "it is no file", pilotfish::read_file(file, 9));
}

// Files cannot grow, as on a full disk.
class NoRoom {
 public:
  NoRoom() {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  NoRoom(NoRoom&&) = delete;
  ~NoRoom() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

// A file is replaced as a whole, and what cannot be written says why.
void test_files_are_replaced() {
  const Folder folder;
  pilotfish::write_file(folder.file(), "one");
  pilotfish::write_file(folder.file(), "two");
  const auto holds_only_two = [&] {
    const std::filesystem::directory_iterator files(folder.file().parent_path());
    return *pilotfish::read_file(folder.file(), 3) == "two" && std::distance(begin(files), end(files)) == 1;
  };
  CHECK(holds_only_two());
  {
    const NoRoom no_room;
    check::expect_error(__FILE__, __LINE__, PF_FILE_MISSING, folder.file().string() + ": cannot be written",
                        [&] { pilotfish::write_file(folder.file(), "three"); });
  }
  CHECK(holds_only_two());
  check::expect_error(__FILE__, __LINE__, PF_FILE_MISSING, "at most 2",
                      [&] { pilotfish::read_file(folder.file(), 2); });
  check::expect_error(__FILE__, __LINE__, PF_FILE_MISSING, "cannot be written",
                      [&] { pilotfish::write_file(folder.file() / "below a file", "x"); });
  CHECK(!pilotfish::read_file(folder.file().parent_path() / "none", 9).has_value());
}

}  // namespace

int main() {
  test_texts_survive();
  test_the_latest_texts_stay();
  test_a_store_that_has_shrunk_keeps_its_end();
  test_what_is_refused();
  test_two_stores_of_one_file_keep_both_texts();
  test_processes_that_save_at_once_lose_nothing();
  test_what_others_saved_is_bounded_too();
  test_a_file_that_became_another_one_stays();
  test_only_the_owner_may_read();
  test_files_are_replaced();
  return check::result();
}
