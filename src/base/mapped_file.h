// A read-only file mapped into memory. Move-only; unmapped when destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
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
  // The file's name and number, its size and when its contents and its state last changed, all as
  // they were when it was opened: another text if it is replaced or written to.
  std::string identity() const;
  // Looks whether the mapped file is still what was opened. Another one in its place is no change.
  // Errors: kDataLoss if it was written to or cut off since.
  Status check_unchanged() const;

  // Asks for huge pages for a part of bytes(), where the file system has them. Before populate().
  static void advise_huge_pages(std::span<const std::byte> part);
  // Brings a part of bytes() into memory now, in one go instead of page by page when it is first
  // read. Advice: a system that cannot does so later.
  static void populate(std::span<const std::byte> part);

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t number_ = 0;      // of the file in its file system
  std::int64_t modified_ns_ = 0;  // of the contents, since 1970
  std::int64_t changed_ns_ = 0;   // of the contents or the state
  std::string path_;
};

}  // namespace kakeya
