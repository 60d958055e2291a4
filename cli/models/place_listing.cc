#include "cli/models/place_listing.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/status.h"
#include "formats/gguf_checkpoint.h"
#include "formats/printable.h"

namespace kakeya::cli {
namespace {

constexpr std::size_t kMostNames = 20'000;  // of a folder
constexpr std::size_t kMostFiles = 5'000;   // of a model
constexpr int kDeepestFolder = 3;           // of a model

// Files of a model's folder by their paths from it. Links to folders are not followed: no program
// makes any.
void collect_files(const std::string& folder,
                   const std::string& prefix,
                   int depth,
                   std::vector<std::string>& files) {
  for (const std::string& name : names_in(folder)) {
    if (files.size() > kMostFiles) return;
    const std::string path = folder + "/" + name;
    std::error_code ignored;
    if (!is_folder(path)) {
      files.push_back(prefix + name);
    } else if (depth < kDeepestFolder && !std::filesystem::is_symlink(path, ignored)) {
      collect_files(path, prefix + name + "/", depth + 1, files);
    }
  }
}

constexpr std::string_view kPartPattern = "-00000-of-00000.gguf";

// True for "x-00002-of-00003.gguf".
bool is_part(std::string_view name) {
  if (name.size() <= kPartPattern.size()) return false;
  const std::string_view end = name.substr(name.size() - kPartPattern.size());
  for (std::size_t i = 0; i < kPartPattern.size(); ++i) {
    const bool digit = end[i] >= '0' && end[i] <= '9';
    if (kPartPattern[i] == '0' ? !digit : end[i] != kPartPattern[i]) return false;
  }
  return true;
}

// "x-00002-of-00003.gguf": the number of the part; 1 for a file that is no part.
int part_of(std::string_view name) {
  if (!is_part(name)) return 1;
  return std::stoi(std::string(name.substr(name.size() - kPartPattern.size() + 1, 5)));
}

// The first problem of the files of a folder's model: all but GGUF files.
std::string problem_of_files(const StoredFolder& stored, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    if (has_gguf_ending(file)) continue;
    std::string problem = problem_of_file(stored.path + "/" + file, stored.root);
    if (!problem.empty()) return problem;
  }
  return "";
}

// The first problem of a GGUF file and of the other parts of a split one.
std::string problem_of_parts(const StoredFolder& stored,
                             const std::vector<std::string>& files,
                             const std::string& first) {
  for (const std::string& part : parts_of(first, files)) {
    std::string problem = problem_of_file(stored.path + "/" + part, stored.root);
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace

void list_place(const ModelPlace& place, std::vector<FoundModel>& found) {
  switch (place.kind) {
    case PlaceKind::kHuggingFace:
      return list_hugging_face(place.folder, found);
    case PlaceKind::kLlamaCpp:
      return list_llama_cpp(place.folder, found);
    case PlaceKind::kLmStudio:
      return list_lm_studio(place.folder, found);
    case PlaceKind::kOllama:
      return list_ollama(place.folder, found);
  }
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  for (std::filesystem::directory_iterator at(folder, failure), end;
       !failure && at != end && names.size() < kMostNames; at.increment(failure)) {
    names.push_back(at->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

bool lies_in(const std::string& path, const std::string& folder) {
  std::error_code failure;
  const auto inner = std::filesystem::weakly_canonical(path, failure);
  if (failure) return false;
  const auto outer = std::filesystem::canonical(folder, failure);
  if (failure) return false;
  return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

Result<std::string> read_small_file(const std::string& path, std::size_t most_bytes) {
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) {
    return error(StatusCode::kNotFound, "{}: there is no such file", path);
  }
  if (!std::filesystem::is_regular_file(path, failure)) {
    return invalid_argument("{}: expected a file", path);
  }
  std::string text(most_bytes + 1, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), std::ssize(text));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > most_bytes) {
    return invalid_argument("{}: expected at most {} bytes", path, most_bytes);
  }
  return text;
}

std::string problem_of_file(const std::string& path, const std::string& root) {
  std::error_code ignored;
  const std::string name = printable(std::filesystem::path(path).filename().string());
  if (!lies_in(path, root)) {
    return name + " is a link that leaves the model's folder: name it by its path";
  }
  if (!std::filesystem::exists(path, ignored)) return name + " is a link to a file that is missing";
  if (!std::filesystem::is_regular_file(path, ignored)) return name + " is no file";
  return "";
}

bool is_model_file(const std::string& file_name) {
  if (!has_gguf_ending(file_name) || part_of(file_name) != 1) return false;
  return file_name.find("mmproj") == std::string::npos;
}

std::string_view stem_of_parts(std::string_view file_name) {
  if (is_part(file_name)) return file_name.substr(0, file_name.size() - kPartPattern.size());
  if (!has_gguf_ending(file_name)) return file_name;
  return file_name.substr(0, file_name.size() - std::string_view(".gguf").size());
}

int count_of_parts(std::string_view file_name) {
  constexpr std::size_t kEnd = std::string_view("00000.gguf").size();
  if (!is_part(file_name)) return 1;
  return std::stoi(std::string(file_name.substr(file_name.size() - kEnd, 5)));
}

std::vector<std::string> parts_of(const std::string& first, const std::vector<std::string>& files) {
  std::vector<std::string> parts = {first};
  for (const std::string& file : files) {
    const bool same_model = stem_of_parts(file) == stem_of_parts(first) && part_of(file) > 1;
    if (is_part(first) && same_model) parts.push_back(file);
  }
  return parts;
}

void list_model_folder(const StoredFolder& stored, std::vector<FoundModel>& found) {
  std::vector<std::string> files;
  if (lies_in(stored.path, stored.root)) collect_files(stored.path, "", 0, files);
  const auto add = [&](const std::string& file, const std::string& problem) {
    found.push_back({.place = stored.place,
                     .name = stored.name,
                     .file = file,
                     .path = file.empty() ? stored.path : stored.path + "/" + file,
                     .opens = problem.empty(),
                     .problem = problem});
  };
  if (files.size() > kMostFiles) {
    return add("", fmt::format("holds more than {} files", kMostFiles));
  }
  bool has_file = false;
  for (const std::string& file : files) {
    if (!is_model_file(file)) continue;
    has_file = true;
    add(file, problem_of_parts(stored, files, file));
  }
  const bool has_config = std::ranges::find(files, "config.json") != files.end();
  const bool has_weights =
      std::ranges::any_of(files, [](const auto& file) { return file.ends_with(".safetensors"); });
  if (has_config && (has_weights || !has_file)) {
    add("", problem_of_files(stored, files));
  } else if (!has_file) {
    add("", lies_in(stored.path, stored.root)
                ? "holds neither a config.json nor a GGUF file"
                : "is a link that leaves its place: name it by its path");
  }
}

}  // namespace kakeya::cli
