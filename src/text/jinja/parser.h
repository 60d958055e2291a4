// Parses the Jinja subset of chat templates: expressions in full, and the statements for, if, set,
// macro, raw, break, continue and generation.
#pragma once

#include <string_view>

#include "kakeya/status.h"
#include "text/jinja/ast.h"

namespace kakeya::jinja {

// Errors: kInvalidArgument with the line for bad syntax, kUnimplemented for other statements,
// kResourceExhausted if tags or expressions nest too deeply.
Result<Block> parse_template(std::string_view source);

}  // namespace kakeya::jinja
