#include "service/grammar/schema_texts.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "service/grammar/pattern_rules.h"
#include "service/grammar/schema_keywords.h"
#include "service/grammar/schema_types.h"
#include "service/grammar/text_automaton.h"

namespace kakeya::service {
namespace {

// A rule costs the engine up to 20 ms with a vocabulary of 262,144 tokens.
constexpr TextAutomaton::Size kMostOfText = {.rules = 256, .wide = 64};

// The rules of one text, as far as they were read: the pattern alone where that says it all.
class TextRules {
 public:
  TextRules(std::size_t room, Effort& effort) : room_(room), effort_(effort) {}

  // Errors: kInvalidArgument for an expression that is not supported, or not beside the others.
  Status add_pattern(std::string_view pattern) {
    if (is_any()) return set_pattern(pattern);
    KAKEYA_ASSIGN_OR_RETURN(const TextAutomaton more, automaton_of(pattern, effort_));
    KAKEYA_ASSIGN_OR_RETURN(const TextAutomaton texts, all());
    KAKEYA_ASSIGN_OR_RETURN(const bool is_met, texts.is_within(more, effort_));
    if (is_met) return {};
    KAKEYA_ASSIGN_OR_RETURN(const TextAutomaton both, texts.intersected(more, effort_));
    return set(both);
  }

  // Errors: kInvalidArgument where that would take too many rules.
  Status add_length(std::int64_t least, std::optional<std::int64_t> most) {
    KAKEYA_ASSIGN_OR_RETURN(const TextAutomaton texts, all());
    const std::optional<std::int64_t> longest = texts.longest();
    if (texts.shortest() >= least && (!most || (longest && *longest <= *most))) return {};
    KAKEYA_ASSIGN_OR_RETURN(const TextAutomaton both, texts.of_length(least, most, effort_));
    return set(both);
  }

  bool is_any() const { return pattern_.empty() && !texts_; }
  bool is_never() const { return texts_ && texts_->is_empty(); }

  // Returns the rules that an automaton makes.
  std::size_t store(Schema& read) {
    if (!texts_) {
      read.pattern = std::move(pattern_);
      return 0;
    }
    read.texts = std::make_shared<const TextAutomaton>(*std::move(texts_));
    return read.texts->size().rules;
  }

 private:
  Status set_pattern(std::string_view pattern) {
    const Status sound = check_pattern(pattern, effort_);
    if (sound) {
      pattern_ = pattern;
      return {};
    }
    const auto texts = automaton_of(pattern, effort_);
    if (texts) return set(*texts);
    const bool is_too_large = texts.error().code() == StatusCode::kResourceExhausted;
    return Unexpected(is_too_large ? sound.error() : texts.error());
  }

  Result<TextAutomaton> all() const {
    if (texts_) return *texts_;
    return automaton_of(pattern_, effort_);
  }

  Status set(const TextAutomaton& texts) {
    const TextAutomaton::Size size = texts.size();
    if (size.rules > std::min(kMostOfText.rules, room_) || size.wide > kMostOfText.wide) {
      return error(StatusCode::kInvalidArgument, "so many rules");
    }
    texts_ = texts;
    return {};
  }

  const std::size_t room_;
  Effort& effort_;
  std::string pattern_;                 // empty: any text
  std::optional<TextAutomaton> texts_;  // in place of the pattern
};

}  // namespace

Status read_text(const nlohmann::ordered_json& own,
                 const std::string& where,
                 const NarrowKeyword& narrow,
                 std::size_t& room,
                 Effort& effort,
                 Schema& read) {
  TextRules rules(room, effort);
  if (own.contains("format")) {
    const auto& format = own["format"];
    const char* const known =
        format.is_string() ? pattern_of_format(format.get<std::string>()) : nullptr;
    const bool is_held = known != nullptr && rules.add_pattern(known).has_value();
    if (!is_held) KAKEYA_TRY(narrow("format " + shown_value(format)));
  }
  if (own.contains("pattern")) {
    if (!own["pattern"].is_string()) return refused_keyword("pattern that is no text", where);
    const bool is_alone = rules.is_any();
    const Status added = rules.add_pattern(own["pattern"].get<std::string>());
    if (!added) {
      KAKEYA_TRY(
          narrow(is_alone ? "pattern: " + added.error().message() : "pattern beside format"));
    }
  }
  const bool has_length = read.least > 0 || read.most;
  if (has_length && !rules.is_any() && !rules.add_length(read.least, read.most)) {
    KAKEYA_TRY(narrow("a length beside pattern or format"));
  }
  if (rules.is_never()) {
    return refused_keyword("a pattern, format and length that no text meets", where);
  }
  room -= rules.store(read);
  return {};
}

}  // namespace kakeya::service
