#include "convert/companion_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDrafter = "drafter";

bool is_weight_file(std::string_view name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

// True for files of the tokenizer, the template, the generation defaults and the licence;
// config.json is rewritten.
bool goes_along(std::string_view name) {
  if (name == "config.json") return false;
  constexpr std::array<std::string_view, 4> kEndings = {".json", ".jinja", ".model", ".txt"};
  return name.starts_with("LICENSE") ||
         std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

std::vector<fs::directory_entry> entries_of(const std::string& dir) {
  std::vector<fs::directory_entry> entries;
  std::error_code failed;
  for (fs::directory_iterator entry(dir, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    entries.push_back(*entry);
  }
  std::sort(entries.begin(), entries.end());  // the same report each time
  return entries;
}

void add_drafter_files(const std::string& dir, CompanionFiles& files) {
  for (const fs::directory_entry& entry : entries_of(dir + "/" + std::string(kDrafter))) {
    std::error_code ignored;
    if (!entry.is_regular_file(ignored)) continue;
    files.copied.push_back(std::string(kDrafter) + "/" + entry.path().filename().string());
    files.copied_bytes += entry.file_size(ignored);
  }
}

Status copy_file(const std::string& from, const std::string& to) {
  KAKEYA_ASSIGN_OR_RETURN(const MappedFile source, MappedFile::open(from));
  KAKEYA_ASSIGN_OR_RETURN(AtomicFile target, AtomicFile::create(to, FileAccess::kUmask));
  KAKEYA_TRY(target.write_at(0, source.bytes()));
  return target.commit();
}

// True if `inner` is `outer` or lies below it.
bool lies_in(const fs::path& inner, const fs::path& outer) {
  std::error_code ignored;
  const fs::path a = fs::weakly_canonical(inner, ignored);
  const fs::path b = fs::weakly_canonical(outer, ignored);
  return std::mismatch(b.begin(), b.end(), a.begin(), a.end()).first == b.end();
}

// True if a command that writes models may have written the file: it has a published name, or one
// that the command would write again.
bool may_be_of_a_model(const std::string& name, const CompanionFiles& companions) {
  constexpr std::array<std::string_view, 14> kNames = {"config.json",
                                                       "model.safetensors",
                                                       "model.safetensors.index.json",
                                                       "generation_config.json",
                                                       "tokenizer.json",
                                                       "tokenizer_config.json",
                                                       "tokenizer.model",
                                                       "special_tokens_map.json",
                                                       "added_tokens.json",
                                                       "chat_template.jinja",
                                                       "chat_template.json",
                                                       "vocab.json",
                                                       "merges.txt",
                                                       "LICENSE"};
  const bool shard = name.starts_with("model-") && name.ends_with(".safetensors");
  const auto& again = companions.copied;
  return shard || std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::find(again.begin(), again.end(), name) != again.end();
}

// Replacing removes: only what such a command may have written.
Status check_replaceable(const std::string& target, const CompanionFiles& companions) {
  bool model = false;
  for (const fs::directory_entry& entry : entries_of(target)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    const bool folder = entry.is_directory(ignored);
    if (folder ? name != kDrafter : !may_be_of_a_model(name, companions)) {
      return error(StatusCode::kFailedPrecondition,
                   "{}: expected the folder of a model, got one with {}{}, which is not removed",
                   target, printable(name), folder ? "/" : "");
    }
    model = model || name == "config.json";
  }
  if (model) return {};
  return error(StatusCode::kFailedPrecondition,
               "{}: expected the folder of a model, got one without config.json, which is not "
               "removed",
               target);
}

}  // namespace

CompanionFiles find_companion_files(const std::string& dir) {
  CompanionFiles files;
  for (const fs::directory_entry& entry : entries_of(dir)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (entry.is_directory(ignored)) {
      if (name == kDrafter) {
        add_drafter_files(dir, files);
      } else {
        files.left_out.push_back(name + "/");
      }
    } else if (entry.is_regular_file(ignored) && goes_along(name) && !is_weight_file(name)) {
      files.copied.push_back(name);
      files.copied_bytes += entry.file_size(ignored);
    } else if (!is_weight_file(name) && name != "config.json") {
      files.left_out.push_back(name);
    }
  }
  return files;
}

Status copy_companion_files(const CompanionFiles& files,
                            const std::string& from,
                            const std::string& to) {
  for (const std::string& name : files.copied) {
    std::error_code failed;
    fs::create_directories(fs::path(to + "/" + name).parent_path(), failed);
    if (failed) {
      return error(StatusCode::kUnavailable, "cannot create a folder in {}: {}", to,
                   failed.message());
    }
    KAKEYA_TRY(copy_file(from + "/" + name, to + "/" + name));
  }
  return {};
}

Status check_room(const std::string& folder, std::uint64_t bytes) {
  std::error_code failed;
  const fs::space_info space = fs::space(folder.empty() ? "." : folder, failed);
  if (failed) {
    return error(StatusCode::kUnavailable, "{}: {}", folder.empty() ? "." : folder,
                 failed.message());
  }
  if (space.available >= bytes) return {};
  return error(StatusCode::kUnavailable, "{}: expected {} of free space, got {}",
               folder.empty() ? "." : folder, format_bytes(bytes), format_bytes(space.available));
}

Status check_target_folder(const std::string& source,
                           const std::string& target,
                           bool replace,
                           std::uint64_t bytes) {
  std::error_code ignored;
  if (lies_in(source, target) || lies_in(target, source)) {
    return error(StatusCode::kFailedPrecondition,
                 "{}: expected a folder that neither holds the source nor lies in it ({})", target,
                 source);
  }
  const bool there = fs::exists(target, ignored);
  if (there && !fs::is_directory(target, ignored)) {
    return error(StatusCode::kFailedPrecondition, "{}: expected a folder or nothing, got a file",
                 target);
  }
  if (there && !fs::is_empty(target, ignored)) {
    if (!replace) {
      return error(
          StatusCode::kFailedPrecondition,
          "{}: expected no such folder, got one with files (FolderOptions::replace replaces it)",
          target);
    }
    KAKEYA_TRY(check_replaceable(target, find_companion_files(source)));
  }
  const fs::path place = fs::weakly_canonical(target, ignored);
  // Without a last slash: "a/b/" would be its own parent.
  return check_room((place.has_filename() ? place : place.parent_path()).parent_path().string(),
                    bytes);
}

}  // namespace kakeya
