// The form that an answer is held to, as users ask for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kakeya/status.h"
#include "service/grammar/call_rules.h"
#include "service/grammar/schema.h"
#include "service/grammar/text_lengths.h"

namespace kakeya::service {

struct AnswerFormat {
  enum class Kind : std::uint8_t {
    kFree,
    kJsonObject,  // any
    kJsonSchema,  // `text` is the schema
    kRegex,       // `text` is a regular expression that the whole answer matches
    kGrammar,     // `text` is a grammar, as read_grammar() reads it
    kChoice,      // one of `choices`
  };
  Kind kind = Kind::kFree;
  std::string text = {};
  std::vector<std::string> choices = {};
  SchemaOptions schema = {};
  std::string field = {};  // what asked for it, which refusals name

  bool is_free() const { return kind == Kind::kFree; }
};

// A grammar in the EBNF of xgrammar.
struct GrammarText {
  std::string text = {};
  // Wishes that are not enforced, each with its place; of schemas that are not strict.
  std::vector<std::string> notes = {};
};

// The grammar of such answers, or of calls of tools in their place. Not of free answers without
// calls. Errors: kInvalidArgument for what cannot be enforced, naming it and its place.
Result<GrammarText> grammar_of(const AnswerFormat& format, const CallRules* calls = nullptr);

// The lengths of such answers. Takes longer than grammar_of(): for programs that look at one form,
// not for servers. Errors: as grammar_of().
Result<TextLengths> text_lengths_of(const AnswerFormat& format);

}  // namespace kakeya::service
