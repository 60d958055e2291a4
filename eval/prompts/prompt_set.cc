#include "eval/prompts/prompt_set.h"

#include <fmt/format.h>

#include <utility>

#include "base/status.h"
#include "formats/json_document.h"

namespace kakeya::eval {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

Result<PromptText> parse_line(std::string_view line, std::size_t number) {
  KAKEYA_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(line));
  KAKEYA_ASSIGN_OR_RETURN(const JsonFields fields, root_fields(document));
  PromptText text;
  KAKEYA_ASSIGN_OR_RETURN(text.id, fields.text_or("id", fmt::format("{}", number)));
  KAKEYA_ASSIGN_OR_RETURN(text.prompt, fields.text_or("prompt", ""));
  KAKEYA_ASSIGN_OR_RETURN(text.answer, fields.text_or("answer", ""));
  KAKEYA_ASSIGN_OR_RETURN(text.length, fields.integer_or("length", 0, {0, kMostTokens}));
  if (text.prompt.empty()) return invalid_argument("prompt: expected a text, got nothing");
  return text;
}

Result<std::vector<TokenId>> encode(const Engine& engine,
                                    const std::string& prompt,
                                    PromptForm form) {
  if (form == PromptForm::kChat) {
    const ChatMessage message{.role = "user", .content = prompt};
    return engine.encode_chat({&message, 1});
  }
  return engine.encode_text(prompt, {.parse_special = form != PromptForm::kPlain});
}

}  // namespace

Result<std::vector<PromptText>> parse_prompts(std::string_view text, const std::string& origin) {
  std::vector<PromptText> prompts;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto prompt = parse_line(line, number);
    if (!prompt) {
      return Unexpected(prompt.error().with_context(fmt::format("{}:{}", origin, number)));
    }
    prompts.push_back(std::move(prompt).value());
  }
  if (prompts.empty()) {
    return invalid_argument("{} holds no prompt; expected lines of {{\"prompt\": ...}}", origin);
  }
  return prompts;
}

Result<PromptSet> encode_prompts(const Engine& engine,
                                 const std::string& name,
                                 std::span<const PromptText> prompts,
                                 PromptForm form) {
  PromptSet set{.name = name, .prompts = {}};
  for (const PromptText& prompt : prompts) {
    auto ids = encode(engine, prompt.prompt, form);
    if (!ids) return Unexpected(ids.error().with_context(prompt.id));
    set.prompts.push_back(
        {.id = prompt.id, .ids = std::move(ids).value(), .answer = prompt.answer});
  }
  return set;
}

}  // namespace kakeya::eval
