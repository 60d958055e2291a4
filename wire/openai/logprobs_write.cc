#include "wire/openai/logprobs_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kakeya::openai {
namespace {

using nlohmann::ordered_json;

// The bytes of a token that is a part of a character, empty of one whose text says it all.
std::string bytes_of_part(const Tokenizer& tokenizer, TokenId id, std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  if (text.find(kReplacement) == std::string_view::npos) return "";
  std::string bytes = tokenizer.token_bytes(id);
  return bytes.find(kReplacement) == std::string::npos ? bytes : "";
}

ordered_json logprob_json(const Tokenizer& tokenizer, const TokenLogprob& of) {
  const std::string text = shown_token(tokenizer, of.id, "");
  const std::string part =
      bytes_of_part(tokenizer, of.id, tokenizer.decode({&of.id, 1}, false, false));
  ordered_json bytes = ordered_json::array();
  for (const char byte : part.empty() ? text : part) {
    bytes.push_back(static_cast<unsigned char>(byte));
  }
  return {{"token", text}, {"logprob", shown_logprob(of)}, {"bytes", std::move(bytes)}};
}

}  // namespace

std::string shown_token(const Tokenizer& tokenizer, TokenId id, std::string_view prefix) {
  const std::string text = tokenizer.decode({&id, 1}, false, false);
  const std::string bytes = bytes_of_part(tokenizer, id, text);
  if (bytes.empty()) return text;
  std::string escaped(prefix);
  for (const char byte : bytes) {
    escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return escaped;
}

float shown_logprob(const TokenLogprob& of) {
  constexpr float kLeast = -9999.0F;
  return std::max(of.logprob, kLeast);
}

ordered_json logprobs_json(const Tokenizer& tokenizer, const TokenLogprobs& of) {
  ordered_json entry = logprob_json(tokenizer, of.token);
  ordered_json& tops = entry["top_logprobs"] = ordered_json::array();
  for (const TokenLogprob& top : of.top) tops.push_back(logprob_json(tokenizer, top));
  return entry;
}

}  // namespace kakeya::openai
