#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/status.h"
#include "base/system_names.h"

namespace kakeya {
namespace {

std::int64_t nanoseconds(const struct timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_nsec};
}

// The whole pages of a part of a mapping, for madvise().
struct Pages {
  explicit Pages(std::span<const std::byte> part) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<std::uintptr_t>(part.data()) / page * page;
    begin = reinterpret_cast<void*>(first);
    bytes = reinterpret_cast<std::uintptr_t>(part.data()) + part.size() - first;
  }

  void* begin;
  std::size_t bytes;
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // A FIFO would be waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return error(StatusCode::kNotFound, "cannot open {}: {}", path, std::strerror(errno));
  }
  struct stat info = {};
  const bool usable = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (!usable) {
    ::close(fd);
    return invalid_argument("{} is not a regular file", path);
  }
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<std::size_t>(info.st_size);
  file.number_ = info.st_ino;
  file.modified_ns_ = nanoseconds(modified_at(info));
  file.changed_ns_ = nanoseconds(changed_at(info));
  if (file.size_ > 0) {
    void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      const int code = errno;
      ::close(fd);
      file.size_ = 0;
      return error(StatusCode::kResourceExhausted, "cannot map {}: {}", path, std::strerror(code));
    }
    file.data_ = static_cast<const std::byte*>(data);
  }
  ::close(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      number_(other.number_),
      modified_ns_(other.modified_ns_),
      changed_ns_(other.changed_ns_),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(number_, other.number_);
  std::swap(modified_ns_, other.modified_ns_);
  std::swap(changed_ns_, other.changed_ns_);
  std::swap(path_, other.path_);
  return *this;
}

std::string MappedFile::identity() const {
  return fmt::format("{} {} {} {} {}", std::filesystem::path(path_).filename().string(), number_,
                     size_, modified_ns_, changed_ns_);
}

Status MappedFile::check_unchanged() const {
  struct stat info = {};
  if (::stat(path_.c_str(), &info) != 0 || info.st_ino != number_) return {};
  if (static_cast<std::size_t>(info.st_size) == size_ &&
      nanoseconds(modified_at(info)) == modified_ns_)
    return {};
  return data_loss("{}: written to while it was read: it had {} bytes and has {}", path_, size_,
                   info.st_size);
}

void MappedFile::advise_huge_pages(std::span<const std::byte> part) {
  if (part.empty()) return;
  const Pages pages(part);
  kakeya::advise_huge_pages(pages.begin, pages.bytes);
}

void MappedFile::populate(std::span<const std::byte> part) {
  if (part.empty()) return;
  const Pages pages(part);
#ifdef MADV_POPULATE_READ
  ::madvise(pages.begin, pages.bytes, MADV_POPULATE_READ);
#else
  ::madvise(pages.begin, pages.bytes, MADV_WILLNEED);
#endif
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace kakeya
