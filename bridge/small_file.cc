#include "small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/status.h"
#include "formats/printable.h"
#include "keys.h"

namespace kakeya::bridge {

namespace {

// Refuses what others than this user, and the system's own, could have changed.
Status check_owner(const struct stat& info, const std::string& shown) {
  constexpr mode_t kOthersWrite = 022;
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return error(StatusCode::kFailedPrecondition, "{}: expected it to be of this user, {}, got {}",
                 shown, ::geteuid(), info.st_uid);
  }
  if ((info.st_mode & kOthersWrite) == 0) return {};
  return error(StatusCode::kFailedPrecondition,
               "{}: expected that nobody else may write there, got mode {:04o}: chmod go-w", shown,
               info.st_mode & 07777);
}

}  // namespace

Result<Descriptor> open_folder(int parent, const std::string& name, Sharing sharing) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const mode_t mode = sharing == Sharing::kOwner ? 0700 : 0777;
  if (::mkdirat(parent, name.c_str(), mode) != 0 && errno != EEXIST) {
    return error(StatusCode::kUnavailable, "cannot make the folder {}: {}", name,
                 std::strerror(errno));
  }
  Descriptor folder(::openat(parent, name.c_str(), kFlags));
  if (folder.get() < 0) {
    return error(StatusCode::kUnavailable, "{}: expected a folder, no link: {}", name,
                 std::strerror(errno));
  }
  struct stat info = {};
  if (sharing == Sharing::kOwner && ::fstat(folder.get(), &info) == 0) {
    KAKEYA_TRY(check_owner(info, printable(name)));
  }
  return folder;
}

Result<std::string> read_small_file(int folder,
                                    const std::string& name,
                                    std::size_t most,
                                    Sharing sharing) {
  const std::string shown = printable(name);
  // A FIFO would make its reader wait.
  const Descriptor file(
      ::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno == ENOENT) return error(StatusCode::kNotFound, "{}: there is no such file", shown);
    if (errno == ELOOP) {
      return error(StatusCode::kFailedPrecondition,
                   "{}: expected a regular file, got a symbolic link", shown);
    }
    return error(StatusCode::kUnavailable, "{}: {}", shown, std::strerror(errno));
  }
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return error(StatusCode::kFailedPrecondition, "{}: expected a regular file", shown);
  }
  if (sharing == Sharing::kOwner) KAKEYA_TRY(check_owner(info, shown));
  const auto too_long = [&](std::uint64_t bytes) {
    return error(StatusCode::kResourceExhausted, "{}: expected at most {} bytes, got {}", shown,
                 most, bytes);
  };
  if (static_cast<std::uint64_t>(info.st_size) > most) {
    return too_long(static_cast<std::uint64_t>(info.st_size));
  }
  std::string text;
  std::array<char, 1 << 14> piece{};
  while (text.size() <= most) {
    const ssize_t bytes = ::read(file.get(), piece.data(), piece.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return error(StatusCode::kUnavailable, "{}: {}", shown, std::strerror(errno));
    if (bytes == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(bytes));
  }
  return too_long(text.size());  // it grew meanwhile
}

Status write_small_file(int folder,
                        const std::string& name,
                        const std::string& text,
                        Sharing sharing) {
  const mode_t mode = sharing == Sharing::kOwner ? 0600 : 0666;
  const auto refuse = [&name] {
    return error(StatusCode::kUnavailable, "cannot write {}: {}", printable(name),
                 std::strerror(errno));
  };
  std::array<unsigned char, 8> random = {};
  KAKEYA_TRY(random_bytes(random));
  // Nobody takes it for the file: lists leave out what begins with a dot.
  const std::size_t slash = name.rfind('/') + 1;  // 0: none
  const std::string partial =
      name.substr(0, slash) + "." + name.substr(slash) + ".partial-" + to_hex(random);
  Descriptor file(::openat(folder, partial.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (file.get() < 0) return refuse();
  std::size_t at = 0;
  while (at < text.size()) {
    const ssize_t bytes = ::write(file.get(), text.data() + at, text.size() - at);
    if (bytes <= 0 && errno != EINTR) break;
    at += bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
  }
  if (at < text.size() || ::fsync(file.get()) != 0 ||
      ::renameat(folder, partial.c_str(), folder, name.c_str()) != 0) {
    const Unexpected refusal = refuse();
    ::unlinkat(folder, partial.c_str(), 0);
    return refusal;
  }
  ::fsync(folder);
  return {};
}

}  // namespace kakeya::bridge
