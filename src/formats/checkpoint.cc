// The shards of a checkpoint folder, behind formats/safetensors.h.
#include <filesystem>
#include <set>
#include <utility>

#include "base/status.h"
#include "formats/json_document.h"
#include "formats/printable.h"
#include "formats/safetensors.h"
#include "formats/tensor_request.h"

namespace kakeya {

namespace {

constexpr std::size_t kMaxShards = 4096;
constexpr std::size_t kMaxIndexBytes = 100'000'000;
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool is_directory(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

// A name that cannot leave the folder. "." and ".." do not end in .safetensors.
bool is_plain_shard_name(std::string_view name) {
  return name.ends_with(".safetensors") && name.size() <= 255 &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

// tensor name -> file name
using WeightMap = std::map<std::string, std::string, std::less<>>;

Result<WeightMap> read_weight_map(const std::string& index_path) {
  KAKEYA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(index_path));
  if (file.bytes().size() > kMaxIndexBytes) {
    return invalid_argument("index of {} bytes, expected at most {}", file.bytes().size(),
                            kMaxIndexBytes);
  }
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  KAKEYA_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(text));
  simdjson::dom::object map;
  if (document.root()["weight_map"].get(map) != simdjson::SUCCESS) {
    return invalid_argument("weight_map: expected an object of tensor names and file names");
  }
  WeightMap result;
  for (const auto field : map) {
    std::string_view name;
    if (field.value.get(name) != simdjson::SUCCESS || !is_plain_shard_name(name)) {
      return invalid_argument(
          "weight_map.{}: expected the name of a .safetensors file in the same folder, got {}",
          printable(field.key), describe(field.value));
    }
    result.emplace(field.key, name);
  }
  return result;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  Checkpoint result;
  result.path_ = path;
  std::string single = path;
  if (is_directory(path)) {
    single = path + "/" + kSingleFile;
    const std::string index = path + "/" + kIndexFile;
    if (!exists(single) && exists(index)) {
      if (auto status = result.open_shards(index); !status) return Unexpected(status.error());
      return result;
    }
    if (!exists(single)) {
      return error(StatusCode::kNotFound, "{}: expected {} or {}, got neither", path, kSingleFile,
                   kIndexFile);
    }
  }
  KAKEYA_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(single));
  result.files_.push_back(std::move(file));
  KAKEYA_TRY(result.index_tensors());
  return result;
}

Status Checkpoint::open_shards(const std::string& index_path) {
  auto weight_map = read_weight_map(index_path);
  if (!weight_map) return Unexpected(weight_map.error().with_context(index_path));
  // Vision and audio parts may be left out: nothing reads them.
  std::erase_if(*weight_map, [&](const auto& entry) {
    return is_other_modality(entry.first) && !exists(path_ + "/" + entry.second);
  });
  std::set<std::string> names;
  for (const auto& [tensor, file] : *weight_map) names.insert(file);
  if (names.size() > kMaxShards) {
    return invalid_argument("{}: {} shards, expected at most {}", index_path, names.size(),
                            kMaxShards);
  }
  for (const std::string& name : names) {
    KAKEYA_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path_ + "/" + name));
    files_.push_back(std::move(file));
  }
  KAKEYA_TRY(index_tensors());
  for (const auto& [tensor, file] : *weight_map) {
    if (find(tensor) == nullptr && is_other_modality(tensor)) continue;
    if (file_of(tensor) != path_ + "/" + file) {
      return invalid_argument("{}: tensor {} should be in {}, but it is {}", index_path,
                              printable(tensor), printable(file),
                              find(tensor) == nullptr ? "in none of the shards" : "in another");
    }
  }
  for (const auto& [tensor, location] : index_) {
    if (!weight_map->contains(tensor)) {
      return invalid_argument("{}: tensor {} of {} is not in the index", index_path,
                              printable(tensor), files_[location.file].path());
    }
  }
  return {};
}

Status Checkpoint::index_tensors() {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    for (const TensorView& tensor : files_[i].tensors()) {
      const auto [other, added] = index_.emplace(tensor.name, Location{i, &tensor});
      if (!added) {
        return invalid_argument("tensor {} is both in {} and in {}", printable(tensor.name),
                                files_[other->second.file].path(), files_[i].path());
      }
    }
  }
  return {};
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : found->second.tensor;
}

std::string_view Checkpoint::file_of(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? std::string_view() : files_[found->second.file].path();
}

std::uint64_t Checkpoint::total_bytes() const {
  std::uint64_t total = 0;
  for (const SafetensorsFile& file : files_) {
    for (const TensorView& tensor : file.tensors()) total += tensor.bytes();
  }
  return total;
}

}  // namespace kakeya
