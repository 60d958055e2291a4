#include "service/grammar/limit_places.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/status.h"

namespace kakeya::service {
namespace {

using Part = Expression::Kind;
using Node = std::uint32_t;

// Tokens are characters behind the last one.
constexpr char32_t kFirstToken = kLastChar + 1;
constexpr std::size_t kMostPairs = 1U << 18;
constexpr std::size_t kEnoughPairs = 1U << 12;
constexpr RuleId kNone = static_cast<RuleId>(-1);

// A finite automaton of a grammar's characters. A rule is there once: a use of it leads to its
// begin, and its end behind each of its uses.
class Automaton {
 public:
  Automaton(const Grammar& grammar, const Expression& root) : grammar_(grammar) {
    const Node begin = add_node();
    add(root, begin, add_node());
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      const RuleId rule = waiting_[i];
      const auto [first, last] = rules_.at(rule);
      if (grammar.is_limited(rule)) limited_.push_back(rule);
      add(grammar.body_of(rule), first, last);
    }
    find_insides();
  }

  // A way on: behind a character, or from the beginning.
  struct Step {
    Node to = 0;             // a node with a character
    RuleId entered = kNone;  // the limited rule that `to` is in and the step has entered
  };

  const std::vector<RuleId>& limited() const { return limited_; }
  bool is_inside(Node node, RuleId rule) const { return inside_[node] == rule; }

  std::vector<Step> begin() const { return steps_from(0); }
  // The ways behind the node's character; kept.
  const std::vector<Step>& behind(Node node) {
    const auto [known, is_new] = behind_.try_emplace(node);
    if (is_new) known->second = steps_from(nodes_[node].next);
    return known->second;
  }

  bool share_character(Node one, Node other) const {
    const CharRanges& a = nodes_[one].ranges;
    const CharRanges& b = nodes_[other].ranges;
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
      if (a[i].first <= b[j].last && b[j].first <= a[i].last) return true;
      ++(a[i].last < b[j].last ? i : j);
    }
    return false;
  }

 private:
  struct Place {
    CharRanges ranges = {};  // of the character to `next`; empty: none
    Node next = 0;
    std::vector<Node> free = {};  // ways without a character
    RuleId enters = kNone;        // begin of a limited rule
    RuleId leaves = kNone;        // end of one
    RuleId owner = kNone;         // the rule that it is in
  };

  Node add_node() {
    nodes_.emplace_back().owner = owner_;
    return static_cast<Node>(nodes_.size() - 1);
  }
  void add_character(CharRanges ranges, Node from, Node to) {
    const Node at = add_node();
    nodes_[at].ranges = std::move(ranges);
    nodes_[at].next = to;
    nodes_[from].free.push_back(at);
  }

  std::pair<Node, Node> nodes_of(RuleId rule) {
    const auto [known, is_new] = rules_.try_emplace(rule);
    if (!is_new) return known->second;
    const RuleId outer = std::exchange(owner_, rule);
    known->second = {add_node(), add_node()};
    owner_ = outer;
    if (grammar_.is_limited(rule)) {
      nodes_[known->second.first].enters = rule;
      nodes_[known->second.second].leaves = rule;
    }
    waiting_.push_back(rule);
    return known->second;
  }

  void add(const Expression& expression, Node from, Node to) {
    const RuleId outer = owner_;
    owner_ = nodes_[from].owner;
    switch (expression.kind) {
      case Part::kText: {
        Node at = from;
        for (const char32_t c : code_points(expression.text)) {
          const Node next = add_node();
          add_character({{c, c}}, at, next);
          at = next;
        }
        nodes_[at].free.push_back(to);
        break;
      }
      case Part::kChars:
        add_character(expression.ranges, from, to);
        break;
      case Part::kToken: {
        const auto c = kFirstToken + static_cast<char32_t>(expression.token);
        add_character({{c, c}}, from, to);
        break;
      }
      case Part::kRule: {
        const auto [first, last] = nodes_of(expression.rule);
        nodes_[from].free.push_back(first);
        nodes_[last].free.push_back(to);
        uses_.emplace_back(owner_, expression.rule);
        break;
      }
      case Part::kSequence: {
        Node at = from;
        for (const Expression& part : expression.parts) {
          const Node next = add_node();
          add(part, at, next);
          at = next;
        }
        nodes_[at].free.push_back(to);
        break;
      }
      case Part::kChoice:
        for (const Expression& part : expression.parts) add(part, from, to);
        break;
      case Part::kCounted:  // any number of times
      case Part::kFree:
        add_repeated(expression, from, to);
        break;
    }
    owner_ = outer;
  }

  // The parts again and again, of free text any characters as well.
  void add_repeated(const Expression& expression, Node from, Node to) {
    const Node at = add_node();
    nodes_[from].free.push_back(at);
    nodes_[at].free.push_back(to);
    if (expression.kind == Part::kFree) add_character({{0, kLastChar}}, at, at);
    for (const Expression& part : expression.parts) add(part, at, at);
  }

  // The rules that a limited one is made of are its own (Grammar::limited()).
  void find_insides() {
    std::unordered_map<RuleId, std::vector<RuleId>> uses;
    for (const auto& [user, used] : uses_) uses[user].push_back(used);
    std::unordered_map<RuleId, RuleId> limited_of;
    for (const RuleId limited : limited_) {
      std::vector<RuleId> open = {limited};
      while (!open.empty()) {
        const RuleId rule = open.back();
        open.pop_back();
        if (!limited_of.try_emplace(rule, limited).second) continue;
        open.insert(open.end(), uses[rule].begin(), uses[rule].end());
      }
    }
    inside_.assign(nodes_.size(), kNone);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const auto found = limited_of.find(nodes_[i].owner);
      if (found != limited_of.end()) inside_[i] = found->second;
    }
  }

  std::vector<Step> steps_from(Node from) const {
    std::vector<Step> steps;
    std::set<std::pair<Node, RuleId>> seen;
    std::vector<std::pair<Node, RuleId>> open = {{from, kNone}};
    while (!open.empty()) {
      auto [node, entered] = open.back();
      open.pop_back();
      const Place& place = nodes_[node];
      if (place.enters != kNone) entered = place.enters;
      if (place.leaves != kNone) entered = kNone;
      if (!seen.emplace(node, entered).second) continue;
      if (!place.ranges.empty()) steps.push_back({node, entered});
      for (const Node next : place.free) open.emplace_back(next, entered);
    }
    return steps;
  }

  const Grammar& grammar_;
  std::deque<Place> nodes_;
  RuleId owner_ = kNone;
  std::unordered_map<RuleId, std::pair<Node, Node>> rules_;
  std::vector<RuleId> waiting_;  // rules whose bodies are to be added
  std::vector<std::pair<RuleId, RuleId>> uses_;
  std::vector<RuleId> limited_;
  std::vector<RuleId> inside_;  // by node: the limited rule
  std::unordered_map<Node, std::vector<Step>> behind_;
};

// Walks two readings of one text at a time.
class Readings {
 public:
  Readings(Automaton& automaton, Effort& effort) : automaton_(automaton), effort_(effort) {}

  Result<std::vector<RuleId>> find() {
    const auto begin = automaton_.begin();
    for (const auto& one : begin) {
      for (const auto& other : begin) meet(one, other);
    }
    while (!open_.empty()) {
      // Others are looked for once these are spelled out.
      if (num_seen_ > kEnoughPairs && !found_.empty()) break;
      if (num_seen_ > kMostPairs || !effort_.spend(1)) {
        return error(StatusCode::kInvalidArgument,
                     "expected fewer ways to read one text, got too many to tell them apart");
      }
      const Pair pair = open_.back();
      open_.pop_back();
      go_on(pair);
    }
    return std::vector<RuleId>(found_.begin(), found_.end());
  }

 private:
  // Two readings; `in`: the limited rule that the first one is in since a place where the other did
  // not go on within it from the same entry. kNone: nothing is known.
  struct Pair {
    Node one = 0;
    Node other = 0;
    RuleId in = kNone;
  };

  void add(const Pair& pair) {
    const auto key = (std::uint64_t{pair.one} << 32U) | pair.other;
    if (!seen_[key].insert(pair.in).second) return;
    ++num_seen_;
    open_.push_back(pair);
  }

  // Both have come to these nodes by one character, or begin there.
  void meet(const Automaton::Step& one, const Automaton::Step& other) {
    add({one.to, other.to, kNone});
    if (one.entered != kNone) add({one.to, other.to, one.entered});
  }

  void go_on(const Pair& pair) {
    if (!automaton_.share_character(pair.one, pair.other)) return;
    // Copies: the next call may move what the first one gave.
    const auto ones = automaton_.behind(pair.one);
    const auto others = automaton_.behind(pair.other);
    for (const auto& one : ones) {
      const bool stays =
          pair.in != kNone && one.entered == kNone && automaton_.is_inside(one.to, pair.in);
      for (const auto& other : others) {
        if (pair.in == kNone) {
          meet(one, other);
        } else if (stays && other.entered == pair.in) {
          found_.insert(pair.in);
        } else if (stays) {
          add({one.to, other.to, pair.in});
        }
      }
    }
  }

  Automaton& automaton_;
  Effort& effort_;
  std::unordered_map<std::uint64_t, std::set<RuleId>> seen_;
  std::size_t num_seen_ = 0;
  std::vector<Pair> open_;
  std::set<RuleId> found_;
};

}  // namespace

Result<std::vector<RuleId>> limits_of_many_places(const Grammar& grammar,
                                                  const Expression& root,
                                                  Effort& effort) {
  Automaton automaton(grammar, root);
  if (automaton.limited().empty()) return std::vector<RuleId>();
  return Readings(automaton, effort).find();
}

Result<SpelledOut> repetitions_to_spell_out(const ReadLimited& read, Effort& effort) {
  SpelledOut spelled_out;
  for (;;) {
    Grammar grammar;
    LimitedRepetitions limited;
    KAKEYA_ASSIGN_OR_RETURN(const Expression root, read(grammar, spelled_out, limited));
    KAKEYA_ASSIGN_OR_RETURN(const auto rules, limits_of_many_places(grammar, root, effort));
    if (rules.empty()) return spelled_out;
    for (const RuleId rule : rules) spelled_out.insert(limited.at(rule));
  }
}

}  // namespace kakeya::service
