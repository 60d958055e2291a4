// JSON that meets a schema, as a grammar.
#pragma once

#include "service/grammar/grammar.h"
#include "service/grammar/json_rules.h"
#include "service/grammar/schema.h"

namespace kakeya::service {

// Members in the schema's order, without needless blanks. Errors: kInvalidArgument for a pattern
// that is not supported.
Result<Expression> values_of(Grammar& grammar, JsonRules& json, const SchemaDocument& document);

}  // namespace kakeya::service
