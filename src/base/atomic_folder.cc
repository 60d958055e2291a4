#include "base/atomic_folder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "base/status.h"

namespace kakeya {

namespace {

namespace fs = std::filesystem;

// A name beside the target that nothing has.
std::string free_name(const std::string& target, std::string_view kind) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::string name;
  std::error_code ignored;
  do {
    name = target + std::string(kind);
    for (int i = 0; i < 6; ++i) name.push_back(kLetters[random() % kLetters.size()]);
  } while (fs::exists(fs::symlink_status(name, ignored)));
  return name;
}

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

Result<AtomicFolder> AtomicFolder::create(const std::string& target, Existing existing) {
  AtomicFolder folder;
  folder.target_ = without_trailing_slashes(target);
  folder.existing_ = existing;
  std::error_code failed;
  const fs::file_status status = fs::status(folder.target_, failed);
  if (fs::exists(status) && !fs::is_directory(status)) {
    return error(StatusCode::kFailedPrecondition, "{}: expected a folder or nothing, got a file",
                 folder.target_);
  }
  const bool filled = fs::is_directory(status) && !fs::is_empty(folder.target_, failed);
  if (filled && existing == Existing::kRefuse) {
    return error(StatusCode::kFailedPrecondition, "{}: expected no such folder, got one with files",
                 folder.target_);
  }
  const fs::path parent = fs::path(folder.target_).parent_path();
  if (!parent.empty()) fs::create_directories(parent, failed);  // a failure shows below
  std::string path = free_name(folder.target_, ".partial-");
  if (!fs::create_directory(path, failed)) {
    return error(StatusCode::kUnavailable, "cannot create a folder beside {}: {}", folder.target_,
                 failed.message());
  }
  folder.path_ = std::move(path);
  return folder;
}

AtomicFolder::AtomicFolder(AtomicFolder&& other) noexcept
    : target_(std::move(other.target_)),
      path_(std::exchange(other.path_, {})),
      existing_(other.existing_) {}

AtomicFolder& AtomicFolder::operator=(AtomicFolder&& other) noexcept {
  std::swap(target_, other.target_);
  std::swap(path_, other.path_);
  std::swap(existing_, other.existing_);
  return *this;
}

AtomicFolder::~AtomicFolder() {
  discard();
}

void AtomicFolder::discard() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(std::exchange(path_, {}), ignored);
}

Status AtomicFolder::commit() {
  std::error_code ignored;
  std::string old;
  if (existing_ == Existing::kReplace && fs::is_directory(target_, ignored)) {
    old = free_name(target_, ".old-");
    if (std::rename(target_.c_str(), old.c_str()) != 0) old.clear();
  }
  // Replaces an empty folder too.
  if (std::rename(path_.c_str(), target_.c_str()) != 0) {
    const int code = errno;
    if (!old.empty()) std::rename(old.c_str(), target_.c_str());
    discard();
    return error(StatusCode::kUnavailable, "cannot replace {}: {}", target_, std::strerror(code));
  }
  path_.clear();
  if (!old.empty()) fs::remove_all(old, ignored);
  return {};
}

}  // namespace kakeya
