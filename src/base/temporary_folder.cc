#include "base/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/status.h"

namespace kakeya {

Result<TemporaryFolder> TemporaryFolder::create() {
  std::error_code failed;
  std::string path = (std::filesystem::temp_directory_path(failed) / "kakeya-XXXXXX").string();
  if (failed) {
    return error(StatusCode::kUnavailable, "there is no temporary folder: {}", failed.message());
  }
  if (::mkdtemp(path.data()) == nullptr) {
    return error(StatusCode::kUnavailable, "there is no temporary folder: {}",
                 std::strerror(errno));
  }
  return TemporaryFolder(std::move(path));
}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  if (!std::filesystem::exists(path_, ignored)) return;
  // Folders whose rights were taken away.
  using std::filesystem::directory_options;
  for (auto entry = std::filesystem::recursive_directory_iterator(
           path_, directory_options::skip_permission_denied, ignored);
       entry != std::filesystem::recursive_directory_iterator(); entry.increment(ignored)) {
    if (!entry->is_directory(ignored)) continue;
    std::filesystem::permissions(entry->path(), std::filesystem::perms::owner_all, ignored);
  }
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace kakeya
