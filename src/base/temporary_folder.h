// A folder for what need not stay.
#pragma once

#include <string>
#include <utility>

#include "kakeya/status.h"

namespace kakeya {

// A folder in the system's folder for such things, mode 0700; removed with all that came into it,
// also where rights were taken away. Move-only.
class TemporaryFolder {
 public:
  // Errors: kUnavailable.
  static Result<TemporaryFolder> create();

  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;  // empty: moved from
};

}  // namespace kakeya
