#include "session_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "base/atomic_file.h"
#include "base/status.h"
#include "base/system_names.h"

namespace kakeya::cli {
namespace {

// Holds other processes off between the comparison and the write, by the folder of the file.
// Anybody who can read the folder could hold its lock for ever, so after two seconds, or where
// folders cannot be locked, the comparison alone has to do.
class FolderLock {
 public:
  explicit FolderLock(const std::string& file) {
    constexpr int kTries = 100;
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    descriptor_ = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ < 0) return;
    for (int i = 0; i < kTries && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0; ++i) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

std::string free_name(const std::string& path) {
  std::error_code unknown;
  for (int i = 2;; ++i) {
    std::string name = path + "." + std::to_string(i);
    if (!std::filesystem::exists(std::filesystem::symlink_status(name, unknown))) return name;
  }
}

}  // namespace

SessionFile::Identity SessionFile::identity() const {
  struct stat file = {};
  if (path_.empty() || ::stat(path_.c_str(), &file) != 0) return {};
  return {.exists = true,
          .device = file.st_dev,
          .inode = file.st_ino,
          .size = file.st_size,
          .seconds = modified_at(file).tv_sec,
          .nanoseconds = modified_at(file).tv_nsec};
}

bool SessionFile::look() {
  seen_ = identity();
  return seen_.exists;
}

Status SessionFile::check_writable() const {
  const auto probe = AtomicFile::create(path_);
  return probe ? Status() : Status(Unexpected(probe.error()));
}

Status SessionFile::replace(const std::function<Status(const std::string& path)>& write) {
  const FolderLock lock(path_);
  if (identity() == seen_) {
    KAKEYA_TRY(write(path_));
    look();
    return {};
  }
  const std::string other = std::exchange(path_, free_name(path_));
  KAKEYA_TRY(write(path_));
  look();
  return error(StatusCode::kFailedPrecondition,
               "{}: another process has written it since it was read here; this conversation goes "
               "on in {}",
               other, path_);
}

Status SessionFile::remove() {
  const FolderLock lock(path_);
  const Identity now = identity();
  if (now.exists && now != seen_) {
    return error(StatusCode::kFailedPrecondition,
                 "{}: another process has written it since it was read here; it stays", path_);
  }
  std::error_code failed;
  std::filesystem::remove(path_, failed);
  if (failed) {
    return error(StatusCode::kUnavailable, "cannot remove {}: {}", path_, failed.message());
  }
  look();
  return {};
}

}  // namespace kakeya::cli
