// Fields by which published configurations ask for something that no network here computes: they
// are refused by name instead of being ignored. Used by the readers of configurations only.
#pragma once

#include "formats/json_document.h"
#include "formats/model_config.h"
#include "formats/model_config_parts.h"

namespace kakeya {

// Of a model or a drafter, or of a part of its configuration. Fields pass that are null, or have
// the value with which they change nothing. Errors: kUnimplemented with the field and its value.
Status reject_unsupported_fields(const JsonFields& fields,
                                 Architecture architecture,
                                 StackKind kind);

// Of generation_config.json: ways to choose tokens other than those of SamplingOptions.
Status reject_unsupported_sampling(const JsonFields& fields);

}  // namespace kakeya
