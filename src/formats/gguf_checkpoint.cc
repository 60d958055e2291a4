#include "formats/gguf_checkpoint.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/status.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr IntegerRange kParts = {0, 4096};
constexpr IntegerRange kTensors = {0, std::int64_t{1} << 32};
constexpr const char* kPartKey = "split.no";
constexpr const char* kCountKey = "split.count";
constexpr const char* kTensorsKey = "split.tensors.count";

// The end of the name of part `part`, counted from 0.
std::string part_suffix(std::int64_t part, std::int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", part + 1, count);
}

// Fails if the file does not say that it is part `part` of `count`.
Status check_part(const GgufFile& file, std::int64_t part, std::int64_t count) {
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t number, file.integer(kPartKey, kParts));
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t total, file.integer(kCountKey, kParts));
  if (number == part && total == count) return {};
  return invalid_argument("{}: expected part {} of {}, got part {} of {}", file.path(), part + 1,
                          count, number + 1, total);
}

}  // namespace

bool has_gguf_ending(std::string_view path) {
  constexpr std::string_view kEnding = ".gguf";
  if (path.size() < kEnding.size()) return false;
  return std::ranges::equal(path.substr(path.size() - kEnding.size()), kEnding, {}, [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
}

bool is_gguf_path(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return false;
  if (has_gguf_ending(path)) return true;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::string magic(kMagic.size(), '\0');
  std::ifstream(path, std::ios::binary).read(magic.data(), std::ssize(magic));
  return magic == kMagic;
}

Result<GgufCheckpoint> GgufCheckpoint::open(const std::string& path) {
  GgufCheckpoint result;
  KAKEYA_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(path));
  result.files_.push_back(std::move(file));
  KAKEYA_TRY(result.open_parts());
  KAKEYA_TRY(result.index_tensors());
  return result;
}

Result<GgufCheckpoint> GgufCheckpoint::open_beginning(const std::string& path) {
  GgufCheckpoint result;
  KAKEYA_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open_beginning(path));
  result.files_.push_back(std::move(file));
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t count,
                          result.first().integer_or(kCountKey, 1, kParts));
  if (count > 1) {
    return error(StatusCode::kUnimplemented, "{}: expected a model in one file, got {} parts", path,
                 count);
  }
  KAKEYA_TRY(result.index_tensors());
  return result;
}

Status GgufCheckpoint::open_parts() {
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t count, first().integer_or(kCountKey, 1, kParts));
  if (count <= 1) return {};
  const std::string path = first().path();
  if (const Status is_first = check_part(first(), 0, count); !is_first) {
    return Unexpected(is_first.error().with_context("open the first part of a split model"));
  }
  const std::string suffix = part_suffix(0, count);
  if (!path.ends_with(suffix)) {
    return invalid_argument("{}: part 1 of {}: expected a name that ends in {}", path, count,
                            suffix);
  }
  const std::string prefix = path.substr(0, path.size() - suffix.size());
  for (std::int64_t part = 1; part < count; ++part) {
    auto file = GgufFile::open(prefix + part_suffix(part, count));
    if (!file) {
      return Unexpected(
          file.error().with_context(fmt::format("{}: part {} of {}", path, part + 1, count)));
    }
    KAKEYA_TRY(check_part(*file, part, count));
    files_.push_back(std::move(file).value());
  }
  return {};
}

Status GgufCheckpoint::index_tensors() {
  for (const GgufFile& file : files_) {
    for (const GgufTensor& tensor : file.tensors()) {
      if (index_.emplace(tensor.name, &tensor).second) continue;
      return invalid_argument("{}: tensor {} is in another part as well", file.path(),
                              printable(tensor.name));
    }
  }
  if (files_.size() == 1 || first().find_value(kTensorsKey) == nullptr) return {};
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t expected, first().integer(kTensorsKey, kTensors));
  if (std::ssize(index_) == expected) return {};
  return data_loss("{}: expected {} tensors in {} parts, got {}", path(), expected, files_.size(),
                   index_.size());
}

const GgufTensor* GgufCheckpoint::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : found->second;
}

std::uint64_t metadata_fingerprint(const GgufCheckpoint& checkpoint) {
  std::uint64_t hash = 0;
  for (const GgufEntry& entry : checkpoint.first().metadata()) {
    hash = XXH3_64bits_withSeed(entry.key.data(), entry.key.size(), hash);
    hash = XXH3_64bits_withSeed(entry.value.bytes.data(), entry.value.bytes.size(), hash);
  }
  return hash;
}

}  // namespace kakeya
