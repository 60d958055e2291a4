#include "cli/hub/hub_listing.h"

#include <algorithm>
#include <set>

#include "base/bounded_json.h"
#include "base/status.h"
#include "cli/hub/hub_name.h"
#include "formats/printable.h"

namespace kakeya::cli {
namespace {

constexpr std::size_t kDigitsOfSha256 = 64;
constexpr std::size_t kDigitsOfSha1 = 40;
// Listings and indices of some hundred thousand files.
constexpr JsonLimits kListingLimits = {.values = 4'000'000};

using Json = nlohmann::ordered_json;

std::string text_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

Result<HubFile> parse_hub_file(const Json& json) {
  HubFile file;
  if (json.is_object()) file.path = text_of(json, "rfilename");
  if (!is_safe_path(file.path)) {
    return invalid_argument("expected paths of files within the repository, got '{}'",
                            printable(file.path));
  }
  const auto size = json.find("size");
  if (size == json.end() || !size->is_number_unsigned()) {
    return invalid_argument("{}: expected its size", printable(file.path));
  }
  file.bytes = size->get<std::uint64_t>();
  const auto lfs = json.find("lfs");
  file.is_sha256 = lfs != json.end() && lfs->is_object();
  file.hash = file.is_sha256 ? text_of(*lfs, "sha256") : text_of(json, "blobId");
  if (!is_hash(file.hash, file.is_sha256 ? kDigitsOfSha256 : kDigitsOfSha1)) {
    return invalid_argument("{}: expected its hash, got '{}'", printable(file.path),
                            printable(file.hash));
  }
  return file;
}

}  // namespace

const HubFile* HubListing::find(std::string_view path) const {
  const auto found = std::ranges::find(files, path, &HubFile::path);
  return found == files.end() ? nullptr : &*found;
}

Result<HubListing> parse_hub_listing(std::string_view text) {
  KAKEYA_ASSIGN_OR_RETURN(const Json json, read_json(text, kListingLimits));
  const auto siblings = json.is_object() ? json.find("siblings") : json.end();
  if (siblings == json.end() || !siblings->is_array()) {
    return invalid_argument("expected an object with siblings");
  }
  HubListing listing = {.commit = text_of(json, "sha"), .files = {}};
  if (!is_hash(listing.commit, kDigitsOfSha1)) {
    return invalid_argument("expected a commit, got '{}'", printable(listing.commit));
  }
  for (const Json& sibling : *siblings) {
    KAKEYA_ASSIGN_OR_RETURN(HubFile file, parse_hub_file(sibling));
    listing.files.push_back(std::move(file));
  }
  return listing;
}

Result<std::vector<std::string>> files_of_index(std::string_view text) {
  KAKEYA_ASSIGN_OR_RETURN(const Json json, read_json(text, kListingLimits));
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object() || map->empty()) {
    return invalid_argument("expected an object with weight_map");
  }
  std::set<std::string> files;
  for (const Json& file : *map) {
    if (!file.is_string()) return invalid_argument("expected names of files in weight_map");
    files.insert(file.get<std::string>());
  }
  return std::vector<std::string>(files.begin(), files.end());
}

}  // namespace kakeya::cli
