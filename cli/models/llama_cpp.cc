// llama.cpp's own cache: files OWNER_NAME_FILE.gguf side by side, of which
// manifest=OWNER=NAME=TAG.json says which file of the repository TAG is.
#include <algorithm>
#include <functional>

#include "base/bounded_json.h"
#include "base/status.h"
#include "cli/models/place_listing.h"

namespace kakeya::cli {
namespace {

constexpr std::string_view kManifestPrefix = "manifest=";
constexpr std::string_view kManifestEnding = ".json";
constexpr std::size_t kMostManifestBytes = 1 << 20;

struct LlamaManifest {
  std::string owner;
  std::string name;
  std::string path;

  // The beginning of the names of its files.
  std::string prefix() const { return owner + "_" + name + "_"; }
};

std::vector<LlamaManifest> manifests_in(const std::string& folder,
                                        const std::vector<std::string>& names) {
  std::vector<LlamaManifest> manifests;
  for (const std::string& file : names) {
    if (!file.starts_with(kManifestPrefix) || !file.ends_with(kManifestEnding)) continue;
    const std::size_t owner = kManifestPrefix.size();
    const std::size_t name = file.find('=', owner);
    const std::size_t tag = name == std::string::npos ? name : file.find('=', name + 1);
    if (tag == std::string::npos) continue;  // of an older version, which listed no models
    manifests.push_back({.owner = file.substr(owner, name - owner),
                         .name = file.substr(name + 1, tag - name - 1),
                         .path = folder + "/" + file});
  }
  // The longer one is meant where names begin alike.
  std::ranges::stable_sort(manifests, std::greater(),
                           [](const auto& manifest) { return manifest.prefix().size(); });
  return manifests;
}

// The name in the cache of the file that a manifest is about.
Result<std::string> file_of(const LlamaManifest& manifest, const std::string& folder) {
  if (!lies_in(manifest.path, folder))
    return invalid_argument("it is a link that leaves the cache");
  KAKEYA_ASSIGN_OR_RETURN(const std::string text,
                          read_small_file(manifest.path, kMostManifestBytes));
  KAKEYA_ASSIGN_OR_RETURN(const auto json, read_json(text));
  const auto file = json.is_object() ? json.find("ggufFile") : json.end();
  if (file == json.end() || !file->is_object() || !file->contains("rfilename") ||
      !(*file)["rfilename"].is_string()) {
    return invalid_argument("expected the text ggufFile.rfilename");
  }
  std::string name = manifest.prefix() + (*file)["rfilename"].get<std::string>();
  std::ranges::replace(name, '/', '_');
  return name;
}

}  // namespace

void list_llama_cpp(const std::string& folder, std::vector<FoundModel>& found) {
  const std::vector<std::string> names = names_in(folder);
  const std::vector<LlamaManifest> manifests = manifests_in(folder, names);
  for (const LlamaManifest& manifest : manifests) {
    const auto file = file_of(manifest, folder);
    if (file && std::ranges::binary_search(names, *file)) continue;
    found.push_back({.place = PlaceKind::kLlamaCpp,
                     .name = manifest.owner + "/" + manifest.name,
                     .path = manifest.path,
                     .opens = false,
                     .problem = file ? "the file that its manifest names is missing"
                                     : "its manifest is damaged: " + file.error().message()});
  }
  for (const std::string& file : names) {
    if (!is_model_file(file)) continue;
    FoundModel model = {.place = PlaceKind::kLlamaCpp,
                        .name = file.substr(0, file.rfind('.')),
                        .file = file,
                        .path = folder + "/" + file};
    const auto manifest = std::ranges::find_if(
        manifests, [&](const auto& each) { return file.starts_with(each.prefix()); });
    if (manifest != manifests.end()) {
      model.name = manifest->owner + "/" + manifest->name;
      model.file = file.substr(manifest->prefix().size());
    }
    model.problem = problem_of_file(model.path, folder);
    model.opens = model.problem.empty();
    found.push_back(std::move(model));
  }
}

}  // namespace kakeya::cli
