// Deterministic automata over the characters of a text: a pattern, a format, look-ahead and lengths
// that one text has to meet together become one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kakeya/status.h"
#include "service/grammar/grammar.h"
#include "service/grammar/json_rules.h"

namespace kakeya::service {

// Immutable. Time and memory of each operation are bounded: what would take more, or more effort
// than is left, is refused.
class TextAutomaton {
 public:
  // The texts that a tree of characters, texts, sequences, choices and counted parts allows; it has
  // no rules. Errors: kResourceExhausted for one that takes too many states.
  static Result<TextAutomaton> of(const Expression& tree, Effort& effort);

  // Digits, without zeros at the begin, of the numbers above 0 that `divisor` divides.
  static TextAutomaton multiples_of(std::int64_t divisor, Effort& effort);

  // Texts that both allow. Errors: as of().
  Result<TextAutomaton> intersected(const TextAutomaton& other, Effort& effort) const;
  // Texts that this one does not allow.
  TextAutomaton complement() const;
  // Texts of `least` to `most` characters; none: without a limit, which no other operation keeps.
  // Errors: as of().
  Result<TextAutomaton> of_length(std::int64_t least,
                                  std::optional<std::int64_t> most,
                                  Effort& effort) const;

  bool is_empty() const { return !states_.front().accepts && states_.front().ways.empty(); }
  // Characters of its shortest and of its longest text; of one that has texts. None: some are
  // longer than any other.
  std::int64_t shortest() const { return distances_to_end().front(); }
  std::optional<std::int64_t> longest() const;
  // True if `other` allows all of its texts. Errors: as of().
  Result<bool> is_within(const TextAutomaton& other, Effort& effort) const;

  // The rules that json_texts() makes: a state each, of which those with many ways on are `wide`.
  struct Size {
    std::size_t rules = 0;
    std::size_t wide = 0;
  };
  Size size() const;
  // The texts as values of JSON have them between their quotes.
  Expression json_texts(Grammar& grammar, const JsonRules& json) const;

 private:
  struct Way {
    CharRange range = {};
    std::size_t to = 0;

    bool operator==(const Way&) const = default;
  };
  // `ways` are in order, none share a character. Characters without a way end in no text.
  struct State {
    bool accepts = false;
    std::vector<Way> ways = {};
  };
  class Tree;  // a tree's automaton that is not deterministic

  explicit TextAutomaton(std::vector<State> states);
  TextAutomaton(std::vector<State> states, Effort& effort);
  static Result<TextAutomaton> any_of_length(std::int64_t least, std::optional<std::int64_t> most);
  void drop_dead_ends();
  void merge_equals(Effort& effort);
  // By state: the fewest characters to the end of a text.
  std::vector<std::int64_t> distances_to_end() const;
  // By state: the most characters that lead to it; none: without end.
  std::vector<std::optional<std::int64_t>> longest_ways() const;
  bool can_be_cut(std::int64_t most) const;

  std::vector<State> states_;              // the first one is where texts begin
  std::optional<std::int64_t> most_ = {};  // characters, beside what the states say
};

}  // namespace kakeya::service
