// The files of a repository, as the Hub lists them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"

namespace kakeya::cli {

struct HubFile {
  std::string path;  // within the repository
  std::uint64_t bytes = 0;
  std::string hash;        // its name among the blobs
  bool is_sha256 = false;  // of the content; else Git's SHA-1 of a blob
};

struct HubListing {
  std::string commit;
  std::vector<HubFile> files;

  // Null if there is none.
  const HubFile* find(std::string_view path) const;
};

// Reads the answer about a model's revision, with blobs=true. Errors: kInvalidArgument for what is
// none, or names a file whose path leaves the repository.
Result<HubListing> parse_hub_listing(std::string_view text);

// The files of an index of split weights (model.safetensors.index.json), each once. Errors:
// kInvalidArgument.
Result<std::vector<std::string>> files_of_index(std::string_view text);

}  // namespace kakeya::cli
