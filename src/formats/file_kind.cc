#include "formats/file_kind.h"

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/printable.h"

namespace kakeya {

Status check_no_lfs_pointer(std::span<const std::byte> bytes) {
  constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec/";
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kPointer)) return {};
  return invalid_argument(
      "expected the file itself, got a Git LFS pointer of {} bytes; git lfs pull fetches the file",
      bytes.size());
}

std::string gguf_beside(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code failure;
  for (std::filesystem::directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure)) {
    if (at->path().extension() == ".gguf") files.push_back(at->path().string());
  }
  if (files.empty()) return "";
  if (files.size() > 1)
    return fmt::format("; its {} GGUF files open by their own names", files.size());
  return fmt::format("; the folder's GGUF file opens by its own name, {}",
                     printable(files.front()));
}

}  // namespace kakeya
