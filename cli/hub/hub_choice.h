// Choice of the files of a repository that a model needs to run.
#pragma once

#include <string>
#include <vector>

#include "cli/hub/hub_listing.h"
#include "cli/hub/hub_name.h"

namespace kakeya::cli {

struct HubChoice {
  std::vector<HubFile> files;
  std::string note;       // which of several it is, as one line; empty: there was one
  bool is_split = false;  // the weights are those that the index among the files names, besides
};

inline constexpr const char* kWeightsIndex = "model.safetensors.index.json";

// Chooses one model, in the order of resolve_model() (cli/models/): a GGUF file with all its parts,
// or weights in safetensors with their configuration, tokenizer and chat template. Errors:
// kNotFound if nothing of it runs, or nothing is of the type or the file that is wanted, with what
// is there.
Result<HubChoice> choose_files(const HubName& name, const HubListing& listing);

}  // namespace kakeya::cli
