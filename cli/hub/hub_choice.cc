#include "cli/hub/hub_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/memory_budget.h"
#include "base/status.h"
#include "cli/models/found_models.h"
#include "cli/models/place_listing.h"
#include "formats/printable.h"

namespace kakeya::cli {
namespace {

constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kConfigFile = "config.json";
constexpr std::size_t kMostNamed = 20;  // files in a message

// Files that stand beside weights in safetensors.
constexpr std::array kBesideWeights = {"generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "tokenizer.model",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "chat_template.jinja",
                                       "chat_template.json"};

std::string files_that_are_there(const std::vector<std::string>& names) {
  if (names.empty()) return "nothing";
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    if (shown.size() == kMostNamed) break;
    shown.push_back(printable(name));
  }
  const std::size_t more = names.size() - shown.size();
  return more == 0 ? fmt::format("{}", fmt::join(shown, ", "))
                   : fmt::format("{} and {} more", fmt::join(shown, ", "), more);
}

std::vector<std::string> paths_of(const HubListing& listing) {
  std::vector<std::string> paths;
  for (const HubFile& file : listing.files) paths.push_back(file.path);
  return paths;
}

// Bytes of the weights in safetensors. What an index names is known later: all are counted.
std::uint64_t safetensors_bytes(const HubListing& listing) {
  if (listing.find(kWeightsIndex) == nullptr) return listing.find(kWeightsFile)->bytes;
  std::uint64_t bytes = 0;
  for (const HubFile& file : listing.files) {
    const bool beside = file.path.find('/') != std::string::npos;
    if (!beside && file.path.ends_with(".safetensors")) bytes += file.bytes;
  }
  return bytes;
}

// All that a name may mean, as the listing of this machine would have it.
std::vector<FoundModel> candidates_of(const HubName& name, const HubListing& listing) {
  std::vector<FoundModel> candidates;
  const std::vector<std::string> paths = paths_of(listing);
  for (const std::string& path : paths) {
    if (!is_model_file(path)) continue;
    FoundModel model = {.name = name.repository, .file = path, .path = path};
    for (const std::string& part : parts_of(path, paths)) model.bytes += listing.find(part)->bytes;
    candidates.push_back(std::move(model));
  }
  const bool has_weights =
      listing.find(kWeightsIndex) != nullptr || listing.find(kWeightsFile) != nullptr;
  if (has_weights && listing.find(kConfigFile) != nullptr) {
    candidates.push_back(
        {.name = name.repository, .type = "safetensors", .bytes = safetensors_bytes(listing)});
  }
  return candidates;
}

std::string name_of_candidate(const FoundModel& model) {
  return fmt::format("{} ({})", model.file.empty() ? model.type : model.file,
                     format_bytes(model.bytes));
}

// Which of several it is; empty if there is one.
std::string note_of_choice(const std::string& asked, std::span<const FoundModel> wanted) {
  if (wanted.size() == 1) return "";
  std::vector<std::string> others;
  for (const FoundModel& other : wanted.subspan(1)) others.push_back(name_of_candidate(other));
  return fmt::format("{} is {}; there are also {}", asked, name_of_candidate(wanted.front()),
                     files_that_are_there(others));
}

HubChoice safetensors_choice(const HubListing& listing) {
  HubChoice choice;
  choice.is_split = listing.find(kWeightsIndex) != nullptr;
  choice.files.push_back(*listing.find(kConfigFile));
  for (const char* const path : kBesideWeights) {
    if (const HubFile* const file = listing.find(path)) choice.files.push_back(*file);
  }
  choice.files.push_back(*listing.find(choice.is_split ? kWeightsIndex : kWeightsFile));
  return choice;
}

Result<HubChoice> files_of_candidate(const FoundModel& model, const HubListing& listing) {
  if (model.file.empty()) return safetensors_choice(listing);
  HubChoice choice;
  for (const std::string& part : parts_of(model.file, paths_of(listing))) {
    choice.files.push_back(*listing.find(part));
  }
  if (std::ssize(choice.files) == count_of_parts(model.file)) return choice;
  return error(StatusCode::kNotFound, "{}: expected {} parts of {}, got {}", model.name,
               count_of_parts(model.file), printable(model.file), choice.files.size());
}

}  // namespace

Result<HubChoice> choose_files(const HubName& name, const HubListing& listing) {
  const std::vector<FoundModel> candidates = candidates_of(name, listing);
  if (candidates.empty()) {
    return error(StatusCode::kNotFound, "{}: expected a GGUF file, or config.json with {}, got {}",
                 name.repository, kWeightsFile, files_that_are_there(paths_of(listing)));
  }
  std::vector<FoundModel> wanted;
  const std::string asked = name.repository + (name.wanted.empty() ? "" : ":" + name.wanted);
  std::ranges::copy_if(candidates, std::back_inserter(wanted),
                       [&](const FoundModel& model) { return is_wanted(model, asked); });
  if (wanted.empty()) {
    std::vector<std::string> there;
    for (const FoundModel& model : candidates) there.push_back(name_of_candidate(model));
    return error(StatusCode::kNotFound,
                 "{}: expected a type or a file that is there, got none such; there is {}", asked,
                 files_that_are_there(there));
  }
  sort_by_choice(wanted);
  KAKEYA_ASSIGN_OR_RETURN(HubChoice choice, files_of_candidate(wanted.front(), listing));
  choice.note = note_of_choice(asked, wanted);
  return choice;
}

}  // namespace kakeya::cli
