#include "cli/hub/hub_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "base/memory_budget.h"
#include "base/status.h"

namespace kakeya::cli {
namespace {

namespace fs = std::filesystem;

// models--OWNER--NAME
std::string entry_of(std::string repository) {
  repository.replace(repository.find('/'), 1, "--");
  return "models--" + repository;
}

std::uint64_t size_of(const std::string& path) {
  std::error_code failure;
  const std::uint64_t bytes = fs::file_size(path, failure);
  return failure ? 0 : bytes;
}

Unexpected cannot_write(const std::string& path, const std::string& why) {
  return error(StatusCode::kFailedPrecondition, "{}: cannot be written: {}", path, why);
}

Status make_folder(const std::string& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure) return cannot_write(path, failure.message());
  return {};
}

}  // namespace

HubCache::HubCache(const std::string& folder, const std::string& repository)
    : locks_(folder + "/.locks/" + entry_of(repository)),
      root_(folder + "/" + entry_of(repository)) {}

std::string HubCache::blob(const HubFile& file) const {
  return root_ + "/blobs/" + file.hash;
}
std::string HubCache::begun_blob(const HubFile& file) const {
  return blob(file) + ".incomplete";
}
std::string HubCache::lock(const HubFile& file) const {
  return locks_ + "/" + file.hash + ".lock";
}
std::string HubCache::snapshot(const std::string& commit) const {
  return root_ + "/snapshots/" + commit;
}

bool HubCache::has(const HubFile& file) const {
  std::error_code ignored;
  return fs::is_regular_file(blob(file), ignored) && size_of(blob(file)) == file.bytes;
}

std::uint64_t HubCache::bytes_here(const HubFile& file) const {
  return has(file) ? file.bytes : std::min(file.bytes, size_of(begun_blob(file)));
}

Status HubCache::make_folders(const std::string& commit) const {
  for (const std::string& folder : {locks_, root_ + "/blobs", root_ + "/refs", snapshot(commit)}) {
    KAKEYA_TRY(make_folder(folder));
  }
  return {};
}

Status HubCache::check_free(std::uint64_t bytes) const {
  struct statvfs disk = {};
  if (::statvfs(root_.c_str(), &disk) != 0) return {};  // nobody can say: writing will
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  if (bytes <= free) return {};
  return error(StatusCode::kResourceExhausted, "{}: expected {} free on its disk, got {}", root_,
               format_bytes(bytes), format_bytes(free));
}

Status HubCache::link(const std::string& commit, const HubFile& file) const {
  const std::string path = snapshot(commit) + "/" + file.path;
  std::string target = "../../blobs/" + file.hash;
  for (const char c : file.path) {
    if (c == '/') target.insert(0, "../");
  }
  std::error_code failure;
  if (fs::read_symlink(path, failure) == target && !failure) return {};
  KAKEYA_TRY(make_folder(fs::path(path).parent_path().string()));
  // Never a moment without one.
  const std::string made = path + ".link" + std::to_string(::getpid());
  fs::remove(made, failure);
  fs::create_symlink(target, made, failure);
  if (!failure) fs::rename(made, path, failure);
  if (failure) return cannot_write(path, failure.message());
  return {};
}

Status HubCache::write_ref(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return {};
  const std::string path = root_ + "/refs/" + revision;
  KAKEYA_TRY(make_folder(fs::path(path).parent_path().string()));
  const std::string made = path + ".ref" + std::to_string(::getpid());
  std::ofstream file(made, std::ios::binary);
  file << commit;
  file.close();
  std::error_code failure;
  if (!file.fail()) fs::rename(made, path, failure);
  if (file.fail() || failure) return cannot_write(path, failure ? failure.message() : "lost");
  return {};
}

Result<BlobLock> BlobLock::take(const std::string& path, const std::function<bool()>& waits) {
  constexpr std::chrono::milliseconds kStep(100);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) return cannot_write(path, std::strerror(errno));
  BlobLock lock(descriptor);
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return cannot_write(path, std::strerror(errno));
    if (!waits()) return error(StatusCode::kCancelled, "stopped");
    std::this_thread::sleep_for(kStep);
  }
  return lock;
}

BlobLock::~BlobLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}
BlobLock::BlobLock(BlobLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

}  // namespace kakeya::cli
