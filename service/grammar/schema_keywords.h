// Keywords of JSON Schema by what they say of an answer.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kakeya/status.h"

namespace kakeya::service {

enum class KeywordUse {
  kNone,      // nothing: an annotation, a value that every answer meets, or a word of no draft
  kEnforced,  // answers are held to it, as far as its value can be
  kNarrows,   // what answers are not held to
};

// The use of a keyword with this value, in drafts 7 and 2020-12.
KeywordUse use_of(std::string_view keyword, const nlohmann::ordered_json& value);

// The value as a message shows it.
std::string shown_value(const nlohmann::ordered_json& value);

// The error of what is not supported: "KEYWORD at PLACE".
Unexpected refused_keyword(std::string_view what, std::string_view where);

// True for a type of JSON Schema, and for a keyword that is about values of it.
bool is_type(std::string_view type);
bool is_about(std::string_view keyword, std::string_view type);

}  // namespace kakeya::service
