// The commits of the repository in whose checkout reports lie.
#pragma once

#include <string>

#include "eval/report/history_rules.h"
#include "kakeya/status.h"

namespace kakeya::cli {

// Asks git for the commits that HEAD of the checkout around `folder` came from. Errors: why they
// are not known, such as a checkout of something else, or one without all of its history.
Result<eval::CommitHistory> read_commit_history(const std::string& folder);

}  // namespace kakeya::cli
