// Fetching of a model from the Hugging Face Hub into the cache of its libraries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/hub/hub_settings.h"
#include "cli/hub/hub_watch.h"
#include "kakeya/status.h"

namespace kakeya::cli {

struct PulledFile {
  std::string path;  // within the repository
  std::uint64_t bytes = 0;
  bool fetched = false;  // false: it was here
};

struct PulledModel {
  std::string repository;
  std::string commit;
  std::string path;  // the folder, or the first GGUF file
  std::vector<PulledFile> files;
};

// Fetches the files that a model needs to run, `name` as choose_files() takes it. Each is compared
// with its size and hash before it gets its name; an interrupted fetch goes on where it ended.
// Errors: those of parse_hub_name(), HubClient and choose_files(); kResourceExhausted for a disk
// that is too full, kDataLoss for a file that is another one than was listed, kCancelled,
// kUnimplemented in builds without libcurl.
Result<PulledModel> pull_model(const std::string& name,
                               const std::string& revision,
                               const HubSettings& settings,
                               HubWatch& watch);

}  // namespace kakeya::cli
