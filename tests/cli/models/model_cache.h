// Folders as programs that fetch models keep them, made for a test.
#pragma once

#include <filesystem>
#include <string>

#include "formats/gguf_model_scratch.h"
#include "formats/scratch_files.h"

namespace kakeya::test {

// A small model as a GGUF file, which says that it is of a type: 1 F16, 7 Q8_0, 15 Q4_K_M. More
// bytes of padding make a larger file.
inline void write_model_file(const std::string& path, int type, std::size_t padding = 0) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  GgufContent content = model_as_gguf(std::string(KAKEYA_TEST_DATA) + "/networks/llama");
  content.set("general.file_type", static_cast<std::uint32_t>(type));
  content.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  content.set("padding", std::string(padding, ' '));
  content.write(path);
}

inline void write_text(const std::string& path, std::string_view text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// A model in the cache of Hugging Face's libraries: blobs, and links to them by their names.
class HubModel {
 public:
  // `entry`: models--OWNER--NAME
  HubModel(const std::string& hub, const std::string& entry) : root_(hub + "/" + entry) {
    write_text(root_ + "/refs/main", "0123abcd");
    std::filesystem::create_directories(root_ + "/blobs");
    std::filesystem::create_directories(snapshot());
  }

  const std::string& root() const { return root_; }
  std::string snapshot() const { return root_ + "/snapshots/0123abcd"; }
  // The blob that a new link with this name leads to.
  std::string add_link(const std::string& name) const {
    const std::string blob = "b" + std::to_string(std::hash<std::string>()(name));
    std::filesystem::create_symlink("../../blobs/" + blob, snapshot() + "/" + name);
    return root_ + "/blobs/" + blob;
  }
  // Files of a folder, not those of its folders.
  void add_files_of(const std::string& folder) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      std::filesystem::copy_file(entry.path(), add_link(entry.path().filename()));
    }
  }

 private:
  std::string root_;
};

}  // namespace kakeya::test
