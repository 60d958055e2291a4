// Models that are on this machine, by the names that their publishers gave them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/models/model_places.h"
#include "kakeya/status.h"

namespace kakeya::cli {

struct FoundModel {
  PlaceKind place = PlaceKind::kHuggingFace;
  std::string name = {};     // OWNER/NAME, or NAME:TAG as Ollama says it
  std::string file = {};     // of a GGUF file: its name within the model; empty: all of a folder
  std::string path = {};     // the folder or the file
  bool opens = true;         // false: nothing of it may be opened, `problem` says why
  std::string family = {};   // as the file says, also where it is not supported
  std::string type = {};     // most bytes of the weights: "BF16", "Q4_K_M"; empty: unknown
  std::uint64_t bytes = 0;   // of the weights
  std::int64_t context = 0;  // 0: unknown
  std::string problem = {};  // why it cannot run; empty: it runs
};

// Lists all models in these places and reads what their headers say, never weights; sorted by name,
// the largest of a name first. What is damaged is in the list, with its problem.
std::vector<FoundModel> find_models(std::span<const ModelPlace> places);

// The shortest name that means this one of all that were found.
std::string shortest_name(const FoundModel& model, std::span<const FoundModel> found);

// True for what is meant as a name and no path: NAME, OWNER/NAME, each with :TYPE, :FILE or :TAG.
bool is_model_name(std::string_view text);

// True if a model is of the type, or of the file, that stands behind the colon of a name, or none
// does. Files say their types in their names, too: UD-Q4_K_XL.
bool is_wanted(const FoundModel& model, const std::string& text);

// Sorts models that one name may mean, the one that it means first: the largest that runs.
void sort_by_choice(std::vector<FoundModel>& models);

enum class Purpose : std::uint8_t { kRun, kLookAt };

struct ModelChoice {
  std::string path;
  std::string note;  // which of several it is, as one line; empty: there was one
};

// The path of a model by its name: of several the largest that runs; to look at, also one that does
// not. Errors: kNotFound, with where was looked and the line that brings it; kFailedPrecondition if
// none of those found will do, with the reason.
Result<ModelChoice> resolve_model(const std::string& name,
                                  std::span<const ModelPlace> places,
                                  Purpose purpose = Purpose::kRun);

}  // namespace kakeya::cli
