// Scratch files for tests of file formats: a temporary folder, and safetensors files put together
// by hand so that they can be wrong.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

#include "kakeya/status.h"

namespace kakeya {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A fresh folder, removed with everything in it at the end of the test.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = testing::TempDir() + "kakeya-formats-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }
  const std::string& root() const { return path_; }

  // Returns the path.
  std::string write(std::string_view name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  std::string path_;
};

// A safetensors file of this header text and data; `length` is what the length field says.
inline std::string safetensors_bytes(std::string_view header,
                                     std::string_view data,
                                     std::uint64_t length) {
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes.append(header).append(data);
}

inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return safetensors_bytes(header, data, header.size());
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The error of a call that must fail; a failure of the test if it did not fail.
template <typename T>
Error error_of(const Result<T>& result) {
  EXPECT_FALSE(result.has_value());
  return result ? Error(StatusCode::kInternal, "") : result.error();
}

template <typename T>
std::string message_of(const Result<T>& result) {
  return error_of(result).message();
}

// The error of a call that must fail, in one line that names the file.
template <typename T>
Error error_naming(std::string_view file, const Result<T>& result) {
  Error error = error_of(result);
  const std::string& message = error.message();
  EXPECT_NE(message.find(std::string(file) + ": "), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return error;
}

template <typename T>
StatusCode code_of(const Result<T>& result) {
  return error_of(result).code();
}

}  // namespace kakeya
