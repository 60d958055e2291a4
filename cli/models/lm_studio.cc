// LM Studio's folder: OWNER/NAME/FILE.gguf, or a checkpoint's files in OWNER/NAME.
#include "cli/models/place_listing.h"

namespace kakeya::cli {

void list_lm_studio(const std::string& folder, std::vector<FoundModel>& found) {
  for (const std::string& owner : names_in(folder)) {
    if (owner.starts_with('.') || !is_folder(folder + "/" + owner)) continue;
    for (const std::string& name : names_in(folder + "/" + owner)) {
      const std::string path = folder + "/" + owner + "/" + name;
      if (name.starts_with('.') || !is_folder(path)) continue;
      list_model_folder(
          {.place = PlaceKind::kLmStudio, .name = owner + "/" + name, .path = path, .root = folder},
          found);
    }
  }
}

}  // namespace kakeya::cli
