#include "cli/model_path.h"

#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/command.h"
#include "cli/hub/hub_name.h"
#include "cli/output.h"
#include "cli/pull_watch.h"

namespace kakeya::cli {
namespace {

Result<std::string> default_model() {
  const std::string folder = find_shared_folder("models/demo", "config.json");
  if (!folder.empty()) return folder;
  return error(StatusCode::kNotFound,
               "the demo model was not found beside the program (models/demo of its checkout, or "
               "share/kakeya/models/demo of its installation); name a model folder: --model DIR");
}

// Fetches a model that is not here. Errors: those of pull_shown(), and kInvalidArgument for what is
// no name of the Hub.
Status pull_if_missing(const std::string& model) {
  std::error_code ignored;
  const auto name = parse_hub_name(model);
  if (!name || std::filesystem::exists(model, ignored)) {
    return invalid_argument("--pull: expected --model OWNER/NAME of the Hugging Face Hub, got '{}'",
                            model);
  }
  const auto choice = resolve_model(model, model_places());
  if (choice || choice.error().code() != StatusCode::kNotFound) return {};
  KAKEYA_TRY(pull_shown(model, kMainBranch));
  return {};
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

Result<std::string> path_of_draft(const std::string& draft) {
  constexpr std::string_view kWithNgrams = "ngram+";
  if (draft == "auto" || draft == "none" || draft == "ngram") return draft;
  const std::string before(draft.starts_with(kWithNgrams) ? kWithNgrams : "");
  const std::string drafter = draft.substr(before.size());
  auto path = path_of_model(drafter, Purpose::kLookAt);
  if (path) return before + *path;
  const bool of_a_hub = drafter.find('/') != std::string::npos;
  if (!of_a_hub && path.error().code() == StatusCode::kNotFound) return draft;
  return path;
}

bool is_model_here(const std::string& name) {
  if (!is_model_name(name)) return false;
  const auto choice = resolve_model(name, model_places());
  return choice || choice.error().code() != StatusCode::kNotFound;
}

Result<std::string> model_path(const ModelFlags& flags) {
  if (flags.pull) KAKEYA_TRY(pull_if_missing(flags.model));
  return flags.model.empty() ? default_model() : path_of_model(flags.model);
}

}  // namespace kakeya::cli
