// Fields of a tokenizer.json, shared by the sources that read it.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string_view>

#include "base/status.h"
#include "formats/printable.h"
#include "text/tokenizer_json.h"

namespace kakeya::tokenizer_json {

constexpr std::size_t kMaxDepth = 64;

// The value of `key`; nothing if it is absent or null.
inline std::optional<simdjson::dom::element> find(simdjson::dom::object parent,
                                                  std::string_view key) {
  simdjson::dom::element value;
  if (parent[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

template <typename T>
Result<T> as(simdjson::dom::element value, std::string_view what) {
  T result;
  if (value.get(result) == simdjson::SUCCESS) return result;
  return data_loss("[tokenizer] '{}' has the wrong JSON type", what);
}

template <typename T>
Result<T> require(simdjson::dom::object parent, std::string_view key) {
  const auto value = find(parent, key);
  if (!value) return data_loss("[tokenizer] '{}' is missing", key);
  return as<T>(*value, key);
}

template <typename T>
Result<T> get_or(simdjson::dom::object parent, std::string_view key, T fallback) {
  const auto value = find(parent, key);
  if (!value) return fallback;
  return as<T>(*value, key);
}

inline Unexpected unsupported(std::string_view stage, std::string_view what) {
  return error(StatusCode::kUnimplemented, "[tokenizer] {} '{}' is not supported", stage,
               printable(what));
}

// Reads "normalizer", "pre_tokenizer", "post_processor" and "decoder" into `parts`.
// Errors: as Tokenizer::parse.
Status read_pipeline(simdjson::dom::object root, TokenizerParts& parts);

}  // namespace kakeya::tokenizer_json
