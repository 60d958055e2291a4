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

namespace kakeya {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
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
  file.modified_ns_ =
      std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + std::int64_t{info.st_mtim.tv_nsec};
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
      modified_ns_(other.modified_ns_),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(modified_ns_, other.modified_ns_);
  std::swap(path_, other.path_);
  return *this;
}

std::string MappedFile::identity() const {
  return fmt::format("{} {} {}", std::filesystem::path(path_).filename().string(), size_,
                     modified_ns_);
}

void MappedFile::populate(std::span<const std::byte> part) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data()) + part.size();
  if (part.empty()) return;
  // What is read from the disk now comes in huge pages, where the file system has them.
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_READ
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
#else
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
#endif
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace kakeya
