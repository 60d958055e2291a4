// The path of the model that a command line names.
#pragma once

#include <string>

#include "cli/models/found_models.h"
#include "kakeya/status.h"

namespace kakeya::cli {

// The folder or file that `model` names: a path that is there, else a model of this machine by its
// name (cli/models/). Where there are several, a note on standard error says which, once. What can
// be no name is returned as it is. Errors: those of resolve_model().
Result<std::string> path_of_model(const std::string& model, Purpose purpose = Purpose::kRun);

// `draft` as --draft takes it, with the path of the drafter that it names in place of a name.
// Errors: those of path_of_model(), for OWNER/NAME; another word that names nothing is left as it
// is.
Result<std::string> path_of_draft(const std::string& draft);

// True if a model of this machine has the name, be it one that runs or not.
bool is_model_here(const std::string& name);

}  // namespace kakeya::cli
