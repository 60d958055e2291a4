#include "wire/http/page.h"

#include <algorithm>

namespace kakeya::wire {

const PageFile* find_page_file(std::string_view path) {
  const std::string_view wanted = path == "/" ? "/page/page.html" : path;
  const std::span<const PageFile> files = page_files();
  const auto found = std::ranges::find(files, wanted, &PageFile::path);
  return found == files.end() ? nullptr : &*found;
}

}  // namespace kakeya::wire
