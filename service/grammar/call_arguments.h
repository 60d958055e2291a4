// The schema that arguments of calls meet: always that of an object, whatever else a tool's
// parameters allow.
#pragma once

#include <nlohmann/json.hpp>

#include "kakeya/status.h"
#include "service/grammar/schema.h"

namespace kakeya::service {

// The objects that meet `parameters`, as a tool has them: kObject, or kAnyOf of these. Errors:
// kInvalidArgument where no object does; kUnimplemented, naming what answers are not held to.
Result<SchemaDocument> read_arguments(const nlohmann::ordered_json& parameters,
                                      const SchemaOptions& options,
                                      Effort& effort);

}  // namespace kakeya::service
