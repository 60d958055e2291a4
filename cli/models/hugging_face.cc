// The cache of Hugging Face's libraries, and of llama.cpp since 2026:
// models--OWNER--NAME/{refs/main, snapshots/COMMIT/FILE -> ../../blobs/HASH}.
#include "base/status.h"
#include "cli/models/place_listing.h"
#include "formats/printable.h"

namespace kakeya::cli {
namespace {

constexpr std::string_view kModelPrefix = "models--";
constexpr std::size_t kMostRefBytes = 256;

bool is_commit(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

// The commit that refs/main names; without it, the only snapshot there is.
Result<std::string> commit_of(const std::string& model) {
  const std::string ref = model + "/refs/main";
  auto text = read_small_file(ref, kMostRefBytes);
  if (text && lies_in(ref, model)) {
    while (text->ends_with('\n')) text->pop_back();
    if (is_commit(*text)) return text;
    return invalid_argument("refs/main is damaged: expected a commit, got '{}'", printable(*text));
  }
  if (text || text.error().code() != StatusCode::kNotFound) {
    return invalid_argument("refs/main is damaged: expected a file of {} bytes at most",
                            kMostRefBytes);
  }
  const std::vector<std::string> commits = names_in(model + "/snapshots");
  if (commits.size() == 1) return commits.front();
  return invalid_argument("has no refs/main, and {} snapshots", commits.size());
}

// models--OWNER--NAME: OWNER/NAME
std::string repository_of(std::string name) {
  for (std::size_t at = name.find("--"); at != std::string::npos; at = name.find("--", at + 1)) {
    name.replace(at, 2, "/");
  }
  return name;
}

}  // namespace

void list_hugging_face(const std::string& folder, std::vector<FoundModel>& found) {
  for (const std::string& entry : names_in(folder)) {
    if (!entry.starts_with(kModelPrefix)) continue;
    const std::string model = folder + "/" + entry;
    StoredFolder stored = {.place = PlaceKind::kHuggingFace,
                           .name = repository_of(entry.substr(kModelPrefix.size())),
                           .path = model,
                           .root = model};
    const auto refuse = [&](std::string problem) {
      found.push_back({.place = stored.place,
                       .name = stored.name,
                       .path = stored.path,
                       .opens = false,
                       .problem = std::move(problem)});
    };
    if (!lies_in(model, folder)) {
      refuse("is a link that leaves its place: name it by its path");
      continue;
    }
    const auto commit = commit_of(model);
    if (!commit) {
      refuse(commit.error().message());
      continue;
    }
    stored.path = model + "/snapshots/" + *commit;
    if (is_folder(stored.path)) {
      list_model_folder(stored, found);
    } else {
      refuse("the snapshot that refs/main names is missing");
    }
  }
}

}  // namespace kakeya::cli
