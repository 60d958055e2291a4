// Damage to databases, as a disk does it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace kakeya::test {

// Overwrites all pages of a database but the first, which says what the file is.
inline void overwrite_pages(const std::string& file) {
  constexpr std::size_t kPage = 4096;
  const std::vector<char> rest(std::filesystem::file_size(file) - kPage, '\xff');
  std::fstream torn(file, std::ios::in | std::ios::out | std::ios::binary);
  torn.seekp(kPage);
  torn.write(rest.data(), static_cast<std::streamsize>(rest.size()));
}

}  // namespace kakeya::test
