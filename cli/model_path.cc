#include "cli/model_path.h"

#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/command.h"
#include "cli/output.h"

namespace kakeya::cli {
namespace {

Result<std::string> default_model() {
  const std::string folder = find_shared_folder("models/demo", "config.json");
  if (!folder.empty()) return folder;
  return error(StatusCode::kNotFound,
               "the demo model was not found beside the program (models/demo of its checkout, or "
               "share/kakeya/models/demo of its installation); name a model folder: --model DIR");
}

}  // namespace

Result<std::string> path_of_model(const std::string& model, Purpose purpose) {
  // A command asks more than once: each name is looked up once, and means one model throughout.
  static std::map<std::pair<std::string, Purpose>, std::string> paths;
  static std::set<std::string> notes;
  std::error_code ignored;
  if (std::filesystem::exists(model, ignored) || !is_model_name(model)) return model;
  const auto known = paths.find({model, purpose});
  if (known != paths.end()) return known->second;
  KAKEYA_ASSIGN_OR_RETURN(const ModelChoice choice, resolve_model(model, model_places(), purpose));
  if (!choice.note.empty() && notes.insert(choice.note).second) {
    print_error("note: {}\n", choice.note);
  }
  paths[{model, purpose}] = choice.path;
  return choice.path;
}

bool is_model_here(const std::string& name) {
  if (!is_model_name(name)) return false;
  const auto choice = resolve_model(name, model_places());
  return choice || choice.error().code() != StatusCode::kNotFound;
}

Result<std::string> model_path(const ModelFlags& flags) {
  return flags.model.empty() ? default_model() : path_of_model(flags.model);
}

}  // namespace kakeya::cli
