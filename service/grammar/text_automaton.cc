#include "service/grammar/text_automaton.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "base/status.h"

namespace kakeya::service {
namespace {

using Part = Expression::Kind;

constexpr std::size_t kMostNodes = 8192;  // of a tree's automaton
constexpr std::size_t kMostStates = 4096;
// Automata of more are left as they are: those that count would take long.
constexpr std::size_t kMostMergedStates = 512;
constexpr std::size_t kManyCharacters = 256;

Unexpected too_large() {
  return error(StatusCode::kResourceExhausted,
               "regular expression: expected fewer ways to read one text");
}

}  // namespace

// Nodes with ways by a character, and without.
class TextAutomaton::Tree {
 public:
  explicit Tree(Effort& effort) : effort_(effort) {}

  Result<TextAutomaton> deterministic(const Expression& tree) {
    const std::size_t begin = add_node();
    const std::size_t end = add_node();
    if (!add(tree, begin, end)) return too_large();
    std::map<std::set<std::size_t>, std::size_t> known;
    std::vector<std::set<std::size_t>> waiting;
    const auto state_of = [&](std::set<std::size_t> nodes) {
      const auto [found, is_new] = known.try_emplace(closed(std::move(nodes)), waiting.size());
      if (is_new) waiting.push_back(found->first);
      return found->second;
    };
    state_of({begin});
    std::vector<State> states;
    for (std::size_t at = 0; at < waiting.size(); ++at) {
      if (waiting.size() > kMostStates || effort_.left() == 0) return too_large();
      const std::set<std::size_t> nodes = waiting[at];
      State state = {.accepts = nodes.contains(end)};
      for (auto& [range, targets] : targets_of(nodes)) {
        state.ways.push_back({range, state_of(std::move(targets))});
      }
      states.push_back(std::move(state));
    }
    return TextAutomaton(std::move(states), effort_);
  }

 private:
  struct Node {
    CharRanges ranges = {};
    std::size_t next = 0;  // by one of the ranges
    std::vector<std::size_t> free = {};
  };

  std::size_t add_node() {
    nodes_.emplace_back();
    return nodes_.size() - 1;
  }

  // False if it is too large.
  bool add(const Expression& part, std::size_t from, std::size_t to) {
    if (nodes_.size() > kMostNodes) return false;
    switch (part.kind) {
      case Part::kText:
        for (const char32_t c : code_points(part.text)) from = add_character({{c, c}}, from);
        nodes_[from].free.push_back(to);
        return true;
      case Part::kChars:
        nodes_[add_character(normalized(part.ranges), from)].free.push_back(to);
        return true;
      case Part::kSequence:
        for (const Expression& one : part.parts) {
          const std::size_t next = add_node();
          if (!add(one, from, next)) return false;
          from = next;
        }
        nodes_[from].free.push_back(to);
        return true;
      case Part::kChoice:
        return std::ranges::all_of(part.parts,
                                   [&](const Expression& one) { return add(one, from, to); });
      case Part::kCounted:
        return add_counted(part, from, to);
      case Part::kRule:
      case Part::kToken:
      case Part::kFree:
        break;
    }
    return false;
  }

  std::size_t add_character(CharRanges ranges, std::size_t from) {
    const std::size_t at = add_node();
    const std::size_t next = add_node();
    nodes_[from].free.push_back(at);
    nodes_[at].ranges = std::move(ranges);
    nodes_[at].next = next;
    return next;
  }

  bool add_counted(const Expression& part, std::size_t from, std::size_t to) {
    const auto add_one = [&] {
      const std::size_t next = add_node();
      const bool is_added = add(part.parts.front(), from, next);
      from = next;
      return is_added;
    };
    for (std::int64_t i = 0; i < part.least; ++i) {
      if (!add_one()) return false;
    }
    if (!part.most) {
      const std::size_t again = add_node();
      nodes_[from].free.push_back(again);
      nodes_[again].free.push_back(to);
      return add(part.parts.front(), again, again);
    }
    for (std::int64_t i = part.least; i < *part.most; ++i) {
      nodes_[from].free.push_back(to);
      if (!add_one()) return false;
    }
    nodes_[from].free.push_back(to);
    return true;
  }

  std::set<std::size_t> closed(std::set<std::size_t> nodes) {
    std::vector<std::size_t> open(nodes.begin(), nodes.end());
    while (!open.empty()) {
      const std::size_t node = open.back();
      open.pop_back();
      for (const std::size_t next : nodes_[node].free) {
        effort_.spend(1);
        if (nodes.insert(next).second) open.push_back(next);
      }
    }
    return nodes;
  }

  // Ranges of characters, in order, with the nodes that each leads to.
  std::vector<std::pair<CharRange, std::set<std::size_t>>> targets_of(
      const std::set<std::size_t>& nodes) {
    std::set<char32_t> begins;  // of ranges, and of what lies behind them
    for (const std::size_t node : nodes) {
      for (const CharRange& range : nodes_[node].ranges) {
        begins.insert({range.first, range.last + 1});
      }
    }
    std::vector<std::pair<CharRange, std::set<std::size_t>>> targets;
    for (auto begin = begins.begin(); begin != begins.end() && effort_.left() > 0; ++begin) {
      std::set<std::size_t> next;
      for (const std::size_t node : nodes) {
        effort_.spend(1 + nodes_[node].ranges.size());
        const bool leads = std::ranges::any_of(nodes_[node].ranges, [&](const CharRange& range) {
          return range.first <= *begin && *begin <= range.last;
        });
        if (leads) next.insert(nodes_[node].next);
      }
      if (next.empty()) continue;  // behind the last one, too
      const CharRange range = {*begin, *std::next(begin) - 1};
      targets.emplace_back(range, std::move(next));
    }
    return targets;
  }

  Effort& effort_;
  std::vector<Node> nodes_;
};

TextAutomaton::TextAutomaton(std::vector<State> states) : states_(std::move(states)) {
  drop_dead_ends();
}

TextAutomaton::TextAutomaton(std::vector<State> states, Effort& effort)
    : TextAutomaton(std::move(states)) {
  merge_equals(effort);
}

Result<TextAutomaton> TextAutomaton::of(const Expression& tree, Effort& effort) {
  return Tree(effort).deterministic(tree);
}

// The remainder of what was read so far is all that matters.
TextAutomaton TextAutomaton::multiples_of(std::int64_t divisor, Effort& effort) {
  const auto count = static_cast<std::size_t>(divisor);
  std::vector<State> states(1 + count);  // the begin, and a state for each remainder
  for (std::size_t i = 0; i < states.size(); ++i) {
    const std::size_t rest = i == 0 ? 0 : i - 1;
    states[i].accepts = i == 1;
    for (char32_t digit = i == 0 ? '1' : '0'; digit <= '9'; ++digit) {
      states[i].ways.push_back({{digit, digit}, 1 + (rest * 10 + (digit - '0')) % count});
    }
  }
  return TextAutomaton(std::move(states), effort);
}

Result<TextAutomaton> TextAutomaton::intersected(const TextAutomaton& other, Effort& effort) const {
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> known;
  std::vector<std::pair<std::size_t, std::size_t>> waiting;
  const auto state_of = [&](std::size_t one, std::size_t its) {
    const auto [found, is_new] = known.try_emplace({one, its}, waiting.size());
    if (is_new) waiting.emplace_back(one, its);
    return found->second;
  };
  state_of(0, 0);
  std::vector<State> states;
  for (std::size_t at = 0; at < waiting.size(); ++at) {
    if (waiting.size() > kMostStates) return too_large();
    const State& one = states_[waiting[at].first];
    const State& its = other.states_[waiting[at].second];
    State both = {.accepts = one.accepts && its.accepts};
    for (std::size_t i = 0, j = 0; i < one.ways.size() && j < its.ways.size();) {
      const Way& a = one.ways[i];
      const Way& b = its.ways[j];
      const CharRange common = {std::max(a.range.first, b.range.first),
                                std::min(a.range.last, b.range.last)};
      if (common.first <= common.last) both.ways.push_back({common, state_of(a.to, b.to)});
      ++(a.range.last < b.range.last ? i : j);
    }
    if (!effort.spend(1 + both.ways.size())) return too_large();
    states.push_back(std::move(both));
  }
  return TextAutomaton(std::move(states), effort);
}

TextAutomaton TextAutomaton::complement() const {
  std::vector<State> states = states_;
  const std::size_t outside = states.size();
  states.emplace_back();
  for (State& state : states) {
    state.accepts = !state.accepts;
    std::vector<Way> all;
    char32_t next = 0;
    for (const Way& way : state.ways) {
      if (next < way.range.first) all.push_back({{next, way.range.first - 1}, outside});
      all.push_back(way);
      next = way.range.last + 1;
    }
    if (next <= kLastChar) all.push_back({{next, kLastChar}, outside});
    state.ways = std::move(all);
  }
  return TextAutomaton(std::move(states));
}

// Any texts of so many characters: a state for each number of them, the last of which stays where
// there is no limit.
Result<TextAutomaton> TextAutomaton::any_of_length(std::int64_t least,
                                                   std::optional<std::int64_t> most) {
  const std::int64_t counted = most.value_or(least);
  if (counted >= std::int64_t{kMostStates}) return too_large();
  std::vector<State> counts(static_cast<std::size_t>(counted) + 1);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i].accepts = std::cmp_greater_equal(i, least);
    const bool is_last = i + 1 == counts.size();
    if (!is_last || !most) counts[i].ways.push_back({{0, kLastChar}, is_last ? i : i + 1});
  }
  return TextAutomaton(std::move(counts));
}

Result<TextAutomaton> TextAutomaton::of_length(std::int64_t least,
                                               std::optional<std::int64_t> most,
                                               Effort& effort) const {
  KAKEYA_ASSIGN_OR_RETURN(const TextAutomaton any, any_of_length(least, std::nullopt));
  KAKEYA_ASSIGN_OR_RETURN(TextAutomaton long_enough, intersected(any, effort));
  if (!most) return long_enough;
  if (long_enough.can_be_cut(*most)) {
    long_enough.most_ = most;
    return long_enough;
  }
  KAKEYA_ASSIGN_OR_RETURN(const TextAutomaton counted, any_of_length(0, most));
  return long_enough.intersected(counted, effort);
}

Result<bool> TextAutomaton::is_within(const TextAutomaton& other, Effort& effort) const {
  KAKEYA_ASSIGN_OR_RETURN(const TextAutomaton outside, intersected(other.complement(), effort));
  return outside.is_empty();
}

std::optional<std::int64_t> TextAutomaton::longest() const {
  std::int64_t most = 0;
  for (const std::optional<std::int64_t>& way : longest_ways()) {
    if (!way) return std::nullopt;
    most = std::max(most, *way);  // of a state where no text ends another goes on
  }
  return most;
}

TextAutomaton::Size TextAutomaton::size() const {
  Size size = {.rules = states_.size()};
  for (const State& state : states_) {
    std::size_t characters = 0;
    for (const Way& way : state.ways) characters += count_of({way.range});
    if (characters > kManyCharacters) ++size.wide;
  }
  return size;
}

Expression TextAutomaton::json_texts(Grammar& grammar, const JsonRules& json) const {
  std::vector<RuleId> rules;
  for (std::size_t i = 0; i < states_.size(); ++i) rules.push_back(grammar.declare("text"));
  for (std::size_t i = 0; i < states_.size(); ++i) {
    std::map<std::size_t, CharRanges> by_target;
    for (const Way& way : states_[i].ways) by_target[way.to].push_back(way.range);
    std::vector<Expression> ways;
    if (states_[i].accepts) ways.push_back(text_of(""));
    for (auto& [to, ranges] : by_target) {
      ways.push_back(
          sequence_of({json.character_of(normalized(std::move(ranges))), rule_of(rules[to])}));
    }
    grammar.define(rules[i], choice_of(std::move(ways)));
  }
  Expression begin = rule_of(rules.front());
  return most_ ? grammar.limited("up_to", std::move(begin), *most_) : begin;
}

// States from which no text ends go, and ways to them; the first state stays.
void TextAutomaton::drop_dead_ends() {
  const std::vector<std::int64_t> distances = distances_to_end();
  std::vector<std::size_t> new_index(states_.size());
  std::vector<State> kept;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    new_index[i] = kept.size();
    if (i == 0 || distances[i] >= 0) kept.push_back(std::move(states_[i]));
  }
  for (State& state : kept) {
    std::erase_if(state.ways, [&](const Way& way) { return distances[way.to] < 0; });
    for (Way& way : state.ways) way.to = new_index[way.to];
  }
  states_ = std::move(kept);
}

// Moore's algorithm: states are equal until their ways tell them apart.
void TextAutomaton::merge_equals(Effort& effort) {
  if (states_.size() > kMostMergedStates) return;
  std::vector<std::size_t> group(states_.size());
  for (std::size_t i = 0; i < states_.size(); ++i)
    group[i] = states_[i].accepts == states_[0].accepts ? 0 : 1;
  std::size_t num_groups = 0;
  std::vector<State> merged;
  for (;;) {
    if (!effort.spend(states_.size())) return;
    using Signature =
        std::pair<std::size_t, std::vector<std::tuple<char32_t, char32_t, std::size_t>>>;
    std::map<Signature, std::size_t> known;
    std::vector<std::size_t> next(states_.size());
    merged.clear();
    for (std::size_t i = 0; i < states_.size(); ++i) {
      State state = {.accepts = states_[i].accepts};
      for (const Way& way : states_[i].ways) {
        const std::size_t to = group[way.to];
        const bool goes_on = !state.ways.empty() && state.ways.back().to == to &&
                             state.ways.back().range.last + 1 == way.range.first;
        if (goes_on) {
          state.ways.back().range.last = way.range.last;
        } else {
          state.ways.push_back({way.range, to});
        }
      }
      Signature signature = {group[i], {}};
      for (const Way& way : state.ways)
        signature.second.emplace_back(way.range.first, way.range.last, way.to);
      const auto [found, is_new] = known.try_emplace(std::move(signature), known.size());
      next[i] = found->second;
      if (is_new) merged.push_back(std::move(state));
    }
    group = std::move(next);
    if (known.size() == num_groups) break;
    num_groups = known.size();
  }
  states_ = std::move(merged);
}

std::vector<std::int64_t> TextAutomaton::distances_to_end() const {
  std::vector<std::vector<std::size_t>> before(states_.size());
  std::vector<std::int64_t> distances(states_.size(), -1);
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    for (const Way& way : states_[i].ways) before[way.to].push_back(i);
    if (!states_[i].accepts) continue;
    distances[i] = 0;
    open.push_back(i);
  }
  for (std::size_t at = 0; at < open.size(); ++at) {
    for (const std::size_t one : before[open[at]]) {
      if (distances[one] >= 0) continue;
      distances[one] = distances[open[at]] + 1;
      open.push_back(one);
    }
  }
  return distances;
}

// In the order of a topological sort, which states on a circle and behind one have no place in.
std::vector<std::optional<std::int64_t>> TextAutomaton::longest_ways() const {
  std::vector<std::size_t> before(states_.size());
  for (const State& state : states_) {
    for (const Way& way : state.ways) ++before[way.to];
  }
  std::vector<std::optional<std::int64_t>> longest(states_.size());
  std::vector<std::int64_t> most(states_.size());
  std::vector<std::size_t> open;
  if (before[0] == 0) open.push_back(0);
  for (std::size_t at = 0; at < open.size(); ++at) {
    const std::size_t state = open[at];
    longest[state] = most[state];
    for (const Way& way : states_[state].ways) {
      most[way.to] = std::max(most[way.to], most[state] + 1);
      if (--before[way.to] == 0) open.push_back(way.to);
    }
  }
  return longest;
}

// True if texts may be cut behind `most` characters: each that is shorter can end within them,
// escapes, which are two characters, included.
bool TextAutomaton::can_be_cut(std::int64_t most) const {
  const auto distances = distances_to_end();
  const auto longest = longest_ways();
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (distances[i] == 0) continue;
    if (!longest[i] || 2 * (*longest[i] + distances[i]) > most) return false;
  }
  return true;
}

}  // namespace kakeya::service
