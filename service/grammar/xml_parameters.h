// Parameters of calls as Qwen3-Coder writes them, as a grammar:
//   <parameter=KEY>\nVALUE\n</parameter>\n
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "service/grammar/grammar.h"
#include "service/grammar/json_rules.h"
#include "service/grammar/schema.h"

namespace kakeya::service {

// The parameters that an object's schema lists, in its order. Texts stand as they are, whatever but
// "</parameter>"; other values are JSON. `document` was read of `parameters`. Errors:
// kInvalidArgument for what cannot be enforced, such as a text's length, naming the parameter.
Result<Expression> xml_parameters(Grammar& grammar,
                                  JsonRules& json,
                                  const SchemaDocument& document,
                                  const nlohmann::ordered_json& parameters);

// Any parameters.
Expression any_xml_parameters(Grammar& grammar);

}  // namespace kakeya::service
