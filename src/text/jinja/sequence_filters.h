// Filters over sequences and numbers: input | name(arguments).
#pragma once

#include <string_view>
#include <unordered_map>

#include "text/jinja/runtime.h"

namespace kakeya::jinja {

using Filter = Result<Value> (*)(Environment&, const Value&, const Arguments&);

// item.path, where a path is a name, an index, or several of them with dots between.
Result<Value> attribute_of(Environment& environment, const Value& item, const Value& path);

// abs, float, groupby, max, min, reverse, round, sort, sum, unique.
const std::unordered_map<std::string_view, Filter>& sequence_filters();

}  // namespace kakeya::jinja
