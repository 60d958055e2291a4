#include "cli/models/found_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/memory_budget.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "cli/models/model_headers.h"
#include "cli/models/place_listing.h"
#include "formats/gguf_checkpoint.h"
#include "formats/printable.h"

namespace kakeya::cli {
namespace {

constexpr std::string_view kLatest = ":latest";

char lowered(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same_letters(std::string_view left, std::string_view right) {
  return std::ranges::equal(left, right, {}, lowered, lowered);
}

// A name that was asked for: what stands before the last colon, and behind it.
struct AskedName {
  std::string name;
  std::string wanted;  // a type or a file; empty: any
};

AskedName split_name(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

// True if a name means this model, be it of one type alone or not. `text` may be the name of
// Ollama's as a whole.
bool may_be_meant(const FoundModel& model, const std::string& text) {
  if (model.name == text) return true;
  if (model.place != PlaceKind::kOllama) return model.name == split_name(text).name;
  return text.find(':') == std::string::npos && model.name.starts_with(text + ":");
}

// Ollama means :latest where no tag is given.
void keep_latest(std::vector<FoundModel>& models, const std::string& text) {
  const auto is_latest = [&](const FoundModel& model) {
    return model.place == PlaceKind::kOllama && model.name == text + std::string(kLatest);
  };
  if (std::ranges::none_of(models, is_latest)) return;
  std::erase_if(models, [&](const FoundModel& model) {
    return model.place == PlaceKind::kOllama && !is_latest(model);
  });
}

void sort_models(std::vector<FoundModel>& models) {
  std::ranges::sort(models, {}, [](const FoundModel& model) {
    return std::tuple(model.name, !model.problem.empty(), ~model.bytes, model.file, model.path);
  });
}

std::vector<FoundModel> list_all(std::span<const ModelPlace> places) {
  std::vector<FoundModel> found;
  for (const ModelPlace& place : places) list_place(place, found);
  return found;
}

Unexpected nothing_found(const std::string& name, std::span<const ModelPlace> places) {
  std::vector<std::string> folders;
  for (const ModelPlace& place : places) folders.push_back(place.folder);
  const std::string stem = split_name(name).name;
  const std::string how = stem.find('/') == std::string::npos
                              ? "`kakeya models` lists what is there"
                              : fmt::format("`kakeya pull {}` fetches Hugging Face's", name);
  return error(StatusCode::kNotFound,
               "{}: expected a model's folder or GGUF file, got no such folder or file, nor a "
               "model of this name in {}; {}",
               name, fmt::join(folders, ", "), how);
}

std::string note_of(const FoundModel& chosen, std::span<const FoundModel> candidates) {
  std::vector<std::string> others;
  for (const FoundModel& each : candidates) {
    if (each.path != chosen.path && each.problem.empty()) {
      others.push_back(shortest_name(each, candidates));
    }
  }
  if (others.empty()) return "";
  return fmt::format("{} is {} ({}, {}, {}); there are also {}", chosen.name, chosen.path,
                     chosen.type, format_bytes(chosen.bytes), place_name(chosen.place),
                     fmt::join(others, ", "));
}

}  // namespace

std::vector<FoundModel> find_models(std::span<const ModelPlace> places) {
  std::vector<FoundModel> found = list_all(places);
  // Vocabularies of a quarter of a million tokens take some ten milliseconds each.
  ThreadPool threads({.pin = false});
  threads.parallel_for(std::ssize(found),
                       [&](std::int64_t i) { read_headers(found[static_cast<std::size_t>(i)]); });
  sort_models(found);
  return found;
}

std::string shortest_name(const FoundModel& model, std::span<const FoundModel> found) {
  const auto means_one = [&](const std::string& text) {
    return std::ranges::count_if(found, [&](const FoundModel& each) {
             return may_be_meant(each, text) && is_wanted(each, text);
           }) == 1;
  };
  const std::string by_type = model.name + ":" + model.type;
  if (means_one(model.name) || model.place == PlaceKind::kOllama) return model.name;
  if (!model.type.empty() && means_one(by_type)) return by_type;
  const std::string by_file = model.name + ":" + model.file;
  if (!model.file.empty() && means_one(by_file)) return by_file;
  return model.path;
}

bool is_wanted(const FoundModel& model, const std::string& text) {
  const std::string wanted = split_name(text).wanted;
  if (model.name == text || wanted.empty()) return true;
  if (same_letters(model.type, wanted) || model.file == wanted) return true;
  const std::string_view stem = stem_of_parts(model.file);
  if (stem.size() <= wanted.size()) return same_letters(stem, wanted);
  const std::string_view end = stem.substr(stem.size() - wanted.size());
  const char before = stem[stem.size() - wanted.size() - 1];
  return same_letters(end, wanted) && std::string_view("-._/").find(before) != std::string::npos;
}

void sort_by_choice(std::vector<FoundModel>& models) {
  std::ranges::stable_sort(models, {}, [](const FoundModel& model) {
    return std::tuple(!model.problem.empty(), !model.opens, ~model.bytes, model.file, model.path);
  });
}

bool is_model_name(std::string_view text) {
  constexpr std::string_view kOthers = "-_./:";
  if (text.empty() || text.front() == '.' || text.front() == '/') return false;
  const bool named = std::ranges::all_of(text, [&](char c) {
    return (c >= '0' && c <= '9') || (lowered(c) >= 'a' && lowered(c) <= 'z') ||
           kOthers.find(c) != std::string_view::npos;
  });
  const bool ends = text.back() == '/' || text.back() == ':';
  const bool is_file = has_gguf_ending(text) && text.find(':') == std::string_view::npos;
  return named && !ends && !is_file && text.find("//") == std::string_view::npos;
}

Result<ModelChoice> resolve_model(const std::string& name,
                                  std::span<const ModelPlace> places,
                                  Purpose purpose) {
  std::vector<FoundModel> models = list_all(places);
  std::erase_if(models, [&](const FoundModel& model) { return !may_be_meant(model, name); });
  keep_latest(models, name);
  for (FoundModel& model : models) read_headers(model);
  if (models.empty()) return nothing_found(name, places);
  std::vector<FoundModel> wanted;
  std::ranges::copy_if(models, std::back_inserter(wanted),
                       [&](const FoundModel& model) { return is_wanted(model, name); });
  if (wanted.empty()) {
    std::vector<std::string> there;
    for (const FoundModel& model : models) there.push_back(shortest_name(model, models));
    return error(StatusCode::kNotFound,
                 "{}: expected a type or a file that is there, got none such; there is {}", name,
                 fmt::join(there, ", "));
  }
  sort_by_choice(wanted);
  const FoundModel& best = wanted.front();
  if (best.problem.empty() || (purpose == Purpose::kLookAt && best.opens)) {
    return ModelChoice{best.path, note_of(best, wanted)};
  }
  return error(StatusCode::kFailedPrecondition, "{}: {} cannot run: {}", name, best.path,
               best.problem);
}

}  // namespace kakeya::cli
