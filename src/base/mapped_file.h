// A read-only file mapped into memory. Move-only; unmapped when destroyed.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kakeya/status.h"

namespace kakeya {

class MappedFile {
 public:
  // Errors: kNotFound if the file cannot be opened, kInvalidArgument if it is no regular file.
  // An empty file gives an empty span.
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::string path_;
};

}  // namespace kakeya
