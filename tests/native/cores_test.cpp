#include "base/cores.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/platform/memory.h"
#include "base/platform/processor.h"
#include "check.h"

namespace {

using pilotfish::platform::cpu_quota;
using pilotfish::platform::memory_limit;

// A file system in a folder of its own, with the files of /proc and /sys that a
// quota is read from.
class FakeRoot {
 public:
  explicit FakeRoot(const std::string& groups)
      : path_(std::filesystem::temp_directory_path() / ("pilotfish_cores_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    write("proc/self/cgroup", groups);
  }
  FakeRoot(FakeRoot&&) = delete;
  ~FakeRoot() { std::filesystem::remove_all(path_); }

  FakeRoot& write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
    return *this;
  }
  std::optional<double> quota() const { return cpu_quota(path_); }
  uint64_t memory() const { return memory_limit(path_); }

 private:
  std::filesystem::path path_;
};

void test_version_2() {
  FakeRoot root("0::/user/app\n");
  CHECK_EQ(root.quota().has_value(), false);
  root.write("sys/fs/cgroup/user/app/cpu.max", "max 100000\n");
  CHECK_EQ(root.quota().has_value(), false);
  root.write("sys/fs/cgroup/user/app/cpu.max", "250000 100000\n");
  CHECK_EQ(root.quota().value_or(-1), 2.5);
  root.write("sys/fs/cgroup/user/cpu.max",
             "150000 100000\n");  // the group above allows less
  CHECK_EQ(root.quota().value_or(-1), 1.5);
}

void test_version_1() {
  FakeRoot root("4:memory:/app\n3:cpu,cpuacct:/app\n1:cpuset:/\n0::/\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000\n");
  CHECK_EQ(root.quota().has_value(), false);
  root.write("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "50000\n");
  CHECK_EQ(root.quota().value_or(-1), 0.5);
}

// A container sees its own group as the root of the hierarchy, while /proc
// names it as the host does.
void test_container() {
  FakeRoot root("3:cpu,cpuacct:/docker/0123\n0::/docker/0123\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n").write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK_EQ(root.quota().value_or(-1), 3.0);
}

void test_odd_files() {
  for (const char* groups : {"", "nonsense\n", "0::\n", "a:b\n"}) CHECK_EQ(FakeRoot(groups).quota().has_value(), false);
  FakeRoot root("0::/\n");
  for (const char* text : {"", "x y\n", "100000\n", "100000 0\n", "-5 100000\n"}) {
    CHECK_EQ(root.write("sys/fs/cgroup/cpu.max", text).quota().has_value(), false);
  }
}

// The smallest limit counts, and no group allows more than the machine has.
void test_memory() {
  const uint64_t machine = FakeRoot("").memory();
  CHECK(machine > uint64_t{64} << 20);
  FakeRoot newer("0::/user/app\n");
  newer.write("sys/fs/cgroup/user/app/memory.max", "max\n");
  CHECK_EQ(newer.memory(), machine);
  newer.write("sys/fs/cgroup/user/app/memory.max", "50000000\n");
  CHECK_EQ(newer.memory(), uint64_t{50000000});
  newer.write("sys/fs/cgroup/user/memory.max", "40000000\n");
  CHECK_EQ(newer.memory(), uint64_t{40000000});
  FakeRoot older("5:cpuset:/\n4:memory:/app\n0::/\n");
  older.write("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK_EQ(older.memory(), machine);
  older.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "30000000\n");
  CHECK_EQ(older.memory(), uint64_t{30000000});
  for (const char* text : {"", "nonsense\n", "0\n", "-1\n"}) {
    CHECK_EQ(older.write("sys/fs/cgroup/memory/memory.limit_in_bytes", text).memory(), machine);
  }
}

}  // namespace

int main() {
  test_memory();
  test_version_2();
  test_version_1();
  test_container();
  test_odd_files();
  CHECK_EQ(pilotfish::num_usable_cores() >= 1, true);
  return check::result();
}
