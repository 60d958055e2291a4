// Ollama's folder: manifests/HOST/OWNER/NAME/TAG, which name the weights in blobs/sha256-HEX.
#include <algorithm>

#include "base/bounded_json.h"
#include "base/status.h"
#include "cli/models/place_listing.h"
#include "formats/printable.h"

namespace kakeya::cli {
namespace {

constexpr std::size_t kMostManifest = 1 << 20;
constexpr std::string_view kRegistry = "registry.ollama.ai/";
constexpr std::string_view kLibrary = "library/";
constexpr std::string_view kDigest = "sha256:";
constexpr std::size_t kDigestDigits = 64;

// The digest of the layer of weights. Errors: kInvalidArgument for a damaged manifest,
// kUnimplemented for weights that an adapter changes.
Result<std::string> digest_of_weights(const std::string& text) {
  KAKEYA_ASSIGN_OR_RETURN(const auto json, read_json(text));
  const auto layers = json.is_object() ? json.find("layers") : json.end();
  if (layers == json.end() || !layers->is_array()) return invalid_argument("expected layers");
  std::string digest;
  for (const auto& layer : *layers) {
    if (!layer.is_object()) return invalid_argument("expected objects in layers");
    const auto kind = layer.find("mediaType");
    const auto sum = layer.find("digest");
    if (kind == layer.end() || sum == layer.end() || !kind->is_string() || !sum->is_string()) {
      return invalid_argument("expected texts mediaType and digest in each layer");
    }
    if (*kind == "application/vnd.ollama.image.adapter") {
      return error(StatusCode::kUnimplemented, "expected weights alone, got an adapter, too");
    }
    if (*kind == "application/vnd.ollama.image.model") digest = sum->get<std::string>();
  }
  const std::string digits = digest.substr(std::min(kDigest.size(), digest.size()));
  if (!digest.starts_with(kDigest) || digits.size() != kDigestDigits ||
      digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return invalid_argument("expected the digest of a layer of weights, got '{}'",
                            printable(digest));
  }
  return digits;
}

// `path` from the folder of manifests: the name as Ollama shows it.
std::string ollama_name(std::string path) {
  if (path.starts_with(kRegistry)) {
    path.erase(0, kRegistry.size());
    if (path.starts_with(kLibrary)) path.erase(0, kLibrary.size());
  }
  path[path.rfind('/')] = ':';
  return path;
}

FoundModel read_manifest(const std::string& folder, const std::string& below) {
  const std::string manifest = folder + "/manifests/" + below;
  FoundModel model = {
      .place = PlaceKind::kOllama, .name = ollama_name(below), .path = manifest, .opens = false};
  model.problem = problem_of_file(manifest, folder);
  if (!model.problem.empty()) return model;
  const auto text = read_small_file(manifest, kMostManifest);
  const auto digest = text ? digest_of_weights(*text) : text;
  if (!digest) {
    model.problem = "its manifest cannot be used: " + digest.error().message();
    return model;
  }
  model.path = folder + "/blobs/sha256-" + *digest;
  model.problem = problem_of_file(model.path, folder);
  model.opens = model.problem.empty();
  return model;
}

// Manifests lie `levels` folders below.
void list_manifests(const std::string& folder,
                    const std::string& below,
                    int levels,
                    std::vector<FoundModel>& found) {
  const std::string path = folder + "/manifests/" + below;
  if (!lies_in(path, folder)) return;
  for (const std::string& name : names_in(path)) {
    if (name.starts_with('.')) continue;
    const std::string next = below.empty() ? name : below + "/" + name;
    if (levels == 0) {
      found.push_back(read_manifest(folder, next));
    } else if (is_folder(folder + "/manifests/" + next)) {
      list_manifests(folder, next, levels - 1, found);
    }
  }
}

}  // namespace

void list_ollama(const std::string& folder, std::vector<FoundModel>& found) {
  list_manifests(folder, "", 3, found);
}

}  // namespace kakeya::cli
