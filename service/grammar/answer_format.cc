#include "service/grammar/answer_format.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "service/grammar/grammar.h"
#include "service/grammar/grammar_text.h"
#include "service/grammar/json_rules.h"
#include "service/grammar/pattern_rules.h"
#include "service/grammar/schema.h"
#include "service/grammar/schema_rules.h"

namespace kakeya::service {
namespace {

constexpr std::size_t kMostChoices = 1000;
constexpr std::size_t kMostChoiceBytes = 65536;
// The size of all rules: what engines take seconds for is refused before they see it.
constexpr std::size_t kMostSize = 400'000;

Result<Expression> choice_between(const std::vector<std::string>& choices) {
  std::size_t bytes = 0;
  std::vector<Expression> texts;
  for (const std::string& choice : choices) {
    bytes += choice.size();
    texts.push_back(text_of(choice));
  }
  const bool fits = !choices.empty() && choices.size() <= kMostChoices && bytes <= kMostChoiceBytes;
  if (!fits) {
    return error(StatusCode::kInvalidArgument,
                 "choices: expected 1 to {} texts of at most {} bytes together, got {} of {}",
                 kMostChoices, kMostChoiceBytes, choices.size(), bytes);
  }
  return choice_of(std::move(texts));
}

Result<Expression> root_of(Grammar& grammar,
                           const AnswerFormat& format,
                           std::vector<std::string>& notes) {
  JsonRules json(grammar);
  switch (format.kind) {
    case AnswerFormat::Kind::kFree:
      break;
    case AnswerFormat::Kind::kJsonObject:
      return json.object();
    case AnswerFormat::Kind::kJsonSchema: {
      Effort effort;  // its rules take no more: those have the grammar's
      KAKEYA_ASSIGN_OR_RETURN(const SchemaDocument document,
                              read_schema(format.text, format.schema, effort));
      notes = document.notes;
      return values_of(grammar, json, document);
    }
    case AnswerFormat::Kind::kRegex:
      return texts_that_match(grammar, format.text);
    case AnswerFormat::Kind::kGrammar:
      return read_grammar(grammar, format.text);
    case AnswerFormat::Kind::kChoice:
      return choice_between(format.choices);
  }
  return error(StatusCode::kInternal, "a free answer has no grammar");
}

// The rules of grammar_of(), without what no finite text meets.
Result<Grammar> rules_of(const AnswerFormat& format,
                         const CallRules* calls,
                         std::vector<std::string>& notes) {
  // Texts of command lines and files may be anything.
  try {
    static_cast<void>(nlohmann::json(format.text).dump());
    for (const std::string& choice : format.choices) {
      static_cast<void>(nlohmann::json(choice).dump());
    }
  } catch (const nlohmann::json::exception&) {
    return error(StatusCode::kInvalidArgument, "grammar: expected UTF-8, got other bytes");
  }
  Grammar grammar;
  std::optional<Expression> root;
  if (!format.is_free()) {
    KAKEYA_ASSIGN_OR_RETURN(root, root_of(grammar, format, notes));
  }
  if (calls != nullptr) {
    KAKEYA_ASSIGN_OR_RETURN(root, answers_with_calls(grammar, *calls, std::move(root), notes));
  }
  KAKEYA_CHECK(root);
  grammar.set_root(*std::move(root));
  KAKEYA_TRY(grammar.drop_endless());
  if (grammar.size() > kMostSize) {
    return error(StatusCode::kInvalidArgument,
                 "grammar: expected one of size {}, got one of size {}: it is too large to enforce",
                 kMostSize, grammar.size());
  }
  return grammar;
}

}  // namespace

Result<GrammarText> grammar_of(const AnswerFormat& format, const CallRules* calls) {
  GrammarText made;
  KAKEYA_ASSIGN_OR_RETURN(const Grammar grammar, rules_of(format, calls, made.notes));
  made.text = grammar.print();
  return made;
}

Result<TextLengths> text_lengths_of(const AnswerFormat& format) {
  std::vector<std::string> notes;
  KAKEYA_ASSIGN_OR_RETURN(const Grammar grammar, rules_of(format, nullptr, notes));
  return lengths_of(grammar);
}

}  // namespace kakeya::service
