#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <random>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/status.h"

namespace kakeya {

namespace {

constexpr std::string_view kRandom = "XXXXXX";  // as mkostemp() wants it
constexpr int kAttempts = 100;                  // to make a file that is one's own

StatusCode code_of_failure(int code) {
  return code == ENOSPC || code == EDQUOT ? StatusCode::kResourceExhausted
                                          : StatusCode::kUnavailable;
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, slash + 1);  // with the slash, for the root folder
}

// Opens a new file whose name's last six characters it replaces by random ones. mkostemp() would
// not let the umask decide.
int open_with_umask(std::string& path) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    for (auto letter = path.end() - std::ssize(kRandom); letter != path.end(); ++letter) {
      *letter = kLetters[random() % kLetters.size()];
    }
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  return -1;
}

// Removes a partial file if it is nobody's. Its writer holds a lock of it, which the system takes
// back when the process ends. The lock is kept until the name is gone: a writer that has just made
// the file and cannot lock it knows by that to make another.
void remove_if_abandoned(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, failed))) return;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  bool is_abandoned = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  if (!is_abandoned && errno != EWOULDBLOCK) {
    const auto age = std::filesystem::file_time_type::clock::now() -
                     std::filesystem::last_write_time(path, failed);
    is_abandoned = !failed && age >= std::chrono::hours(1);
  }
  if (is_abandoned) std::filesystem::remove(path, failed);
  ::close(descriptor);
}

// Locks a new file. False if somebody takes it for abandoned and removes it.
bool keep(int descriptor) {
  struct stat info = {};
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
  return ::fstat(descriptor, &info) != 0 || info.st_nlink > 0;
}

// The path of the regular file that is or will be at `target`, behind symbolic links if they are
// kept.
Result<std::string> regular_target(const std::string& target, LinkedTarget linked) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const bool is_link = fs::is_symlink(fs::symlink_status(target, failed));
  if (is_link && linked == LinkedTarget::kReplaced) return target;
  const fs::file_status status = fs::status(target, failed);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    return error(StatusCode::kUnavailable, "{} is no regular file: it is not replaced by one",
                 target);
  }
  if (!is_link) return target;
  const fs::path resolved = fs::weakly_canonical(target, failed);
  if (failed) {
    return error(StatusCode::kUnavailable, "cannot follow {}: {}", target, failed.message());
  }
  return resolved.string();
}

}  // namespace

void AtomicFile::remove_abandoned(const std::string& target, Names names) {
  namespace fs = std::filesystem;
  const fs::path wanted = fs::path(target).filename();
  std::error_code failed;
  for (fs::directory_iterator entry(folder_of(target), failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::string found = entry->path().filename().string();
    const std::size_t partial = found.rfind(kPartial);
    if (partial == std::string::npos ||
        found.size() != partial + kPartial.size() + kRandom.size()) {
      continue;
    }
    found.resize(partial);
    const bool ours = names == Names::kTarget ? found == wanted
                                              : fs::path(found).extension() == wanted.extension();
    if (ours) remove_if_abandoned(entry->path());
  }
}

Result<AtomicFile> AtomicFile::create(const std::string& target,
                                      FileAccess access,
                                      LinkedTarget linked) {
  AtomicFile file;
  KAKEYA_ASSIGN_OR_RETURN(file.target_, regular_target(target, linked));
  for (int attempt = 0; attempt < kAttempts && file.descriptor_ < 0; ++attempt) {
    file.path_ = file.target_ + std::string(kPartial) + std::string(kRandom);
    if (access == FileAccess::kOwner) {
      file.descriptor_ = ::mkostemp(file.path_.data(), O_CLOEXEC);
    } else {
      file.descriptor_ = open_with_umask(file.path_);
    }
    if (file.descriptor_ < 0) break;
    if (!keep(file.descriptor_)) ::close(std::exchange(file.descriptor_, -1));
  }
  if (file.descriptor_ < 0) {
    const int code = errno;
    return error(code_of_failure(code), "cannot create a file beside {}: {}", target,
                 std::strerror(code));
  }
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : target_(std::move(other.target_)),
      path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(target_, other.target_);
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::discard() {
  if (descriptor_ < 0) return;
  ::close(std::exchange(descriptor_, -1));
  ::unlink(path_.c_str());
}

Unexpected AtomicFile::fail(std::string_view what) {
  const int code = errno;
  discard();
  return error(code_of_failure(code), "cannot {} {}: {}", what, target_, std::strerror(code));
}

Status AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (!is_open()) {
    return error(StatusCode::kFailedPrecondition, "{} is no longer being written", target_);
  }
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail("write");
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status AtomicFile::reserve(std::uint64_t bytes) {
  if (!is_open()) {
    return error(StatusCode::kFailedPrecondition, "{} is no longer being written", target_);
  }
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) return fail("make room for");
  return {};
}

Status AtomicFile::commit() {
  if (!is_open()) {
    return error(StatusCode::kFailedPrecondition, "{} is no longer being written", target_);
  }
  // The bytes must be on the disk before the name is, or a power failure could leave an empty file.
  if (::fsync(descriptor_) != 0) return fail("flush");
  if (std::rename(path_.c_str(), target_.c_str()) != 0) return fail("replace");
  ::close(std::exchange(descriptor_, -1));
  return flush_folder();
}

Status AtomicFile::flush_folder() const {
  const std::string folder = folder_of(target_);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // EINVAL: a file system that cannot flush folders; there is nothing more to ask of it.
  const bool flushed = descriptor >= 0 && (::fsync(descriptor) == 0 || errno == EINVAL);
  const int code = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (flushed) return {};
  return error(StatusCode::kUnavailable,
               "{} is replaced, but its folder cannot be flushed and a power failure may bring the "
               "old file back: {}",
               target_, std::strerror(code));
}

}  // namespace kakeya
