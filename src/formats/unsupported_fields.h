// Fields by which published configurations ask for something that no network here computes: they
// are refused by name instead of being ignored. Used by the readers of configurations only.
#pragma once

#include <string>
#include <vector>

#include "formats/json_document.h"
#include "formats/model_config.h"
#include "formats/model_config_parts.h"

namespace kakeya {

// Rejects fields of a model or a drafter, or of a part of its configuration. Fields pass that are
// null, or have the value with which they change nothing. Errors: kUnimplemented with the field and
// its value.
Status reject_unsupported_fields(const JsonFields& fields,
                                 Architecture architecture,
                                 StackKind kind);

// Lists the fields of a generation_config.json that ask for other ways to choose tokens than those
// of SamplingOptions, each with its value.
std::vector<std::string> unsupported_sampling(const JsonFields& fields);

}  // namespace kakeya
