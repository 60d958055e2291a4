// Reading of what the headers of a found model say.
#pragma once

#include "cli/models/found_models.h"

namespace kakeya::cli {

// Fills in family, type, bytes and context, and the problem of a model that cannot run. Leaves one
// that may not be opened as it is.
void read_headers(FoundModel& model);

}  // namespace kakeya::cli
