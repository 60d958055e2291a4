// Any text as a schema, a regular expression, a grammar or the parameters of a tool: refused, or a
// grammar of bounded size. The first byte says as which.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "service/grammar/answer_format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using kakeya::service::AnswerFormat;
  using kakeya::service::CallRules;
  using kakeya::service::ToolFormat;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr AnswerFormat::Kind kKinds[] = {
      AnswerFormat::Kind::kJsonSchema, AnswerFormat::Kind::kRegex, AnswerFormat::Kind::kGrammar};
  constexpr ToolFormat kCalls[] = {ToolFormat::kGemma, ToolFormat::kQwenJson, ToolFormat::kQwenXml};
  const std::size_t choice = data[0] % 6;
  kakeya::Result<kakeya::service::GrammarText> grammar = kakeya::service::GrammarText();
  if (choice < 3) {
    grammar = grammar_of(AnswerFormat{.kind = kKinds[choice], .text = text});
  } else {
    const std::string tool = R"({"function":{"name":"f","strict":true,"parameters":)" + text + "}}";
    if (!nlohmann::json::accept(tool)) return 0;
    const CallRules calls = {
        .format = kCalls[choice - 3], .tools = {tool}, .begin = 1, .end = 2, .quote = 3};
    grammar = grammar_of(AnswerFormat(), &calls);
  }
  constexpr std::size_t kMost = std::size_t{16} << 20;
  if (grammar && (grammar->text.size() > kMost || !grammar->text.starts_with("root ::= top\n"))) {
    std::abort();
  }
  return 0;
}
