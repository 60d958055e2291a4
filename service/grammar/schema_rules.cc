#include "service/grammar/schema_rules.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/status.h"
#include "service/grammar/number_rules.h"
#include "service/grammar/pattern_rules.h"

namespace kakeya::service {
namespace {

class SchemaRules {
 public:
  SchemaRules(Grammar& grammar, JsonRules& json, const SchemaDocument& document)
      : grammar_(grammar), json_(json), document_(document) {}

  Result<Expression> root() {
    for (std::size_t i = 0; i < document_.definitions.size(); ++i) {
      definitions_.push_back(grammar_.declare("definition"));
    }
    for (std::size_t i = 0; i < document_.definitions.size(); ++i) {
      KAKEYA_ASSIGN_OR_RETURN(Expression body, value(document_.definitions[i]));
      grammar_.define(definitions_[i], std::move(body));
    }
    return value(document_.root);
  }

 private:
  Result<Expression> value(const Schema& schema) {
    switch (schema.kind) {
      case SchemaKind::kAny:
        return json_.any();
      case SchemaKind::kReference:
        return rule_of(definitions_[schema.reference]);
      case SchemaKind::kValues:
        return values(schema);
      case SchemaKind::kAnyOf:
        return any_of(schema);
      case SchemaKind::kNull:
        return text_of("null");
      case SchemaKind::kBoolean:
        return choice_of({text_of("true"), text_of("false")});
      case SchemaKind::kInteger:
      case SchemaKind::kNumber:
        return number(schema);
      case SchemaKind::kString:
        return string(schema);
      case SchemaKind::kArray:
        return array(schema);
      case SchemaKind::kObject:
        return object(schema);
    }
    return never();
  }

  Expression values(const Schema& schema) {
    std::vector<Expression> texts;
    for (const auto& one : schema.values) texts.push_back(json_.literal(one));
    return grammar_.shared("values", choice_of(std::move(texts)));
  }

  Result<Expression> any_of(const Schema& schema) {
    std::vector<Expression> ways;
    for (const Schema& part : schema.parts) {
      KAKEYA_ASSIGN_OR_RETURN(Expression way, value(part));
      ways.push_back(std::move(way));
    }
    return grammar_.shared("any_of", choice_of(std::move(ways)));
  }

  Result<Expression> number(const Schema& schema) {
    const bool whole = schema.kind == SchemaKind::kInteger;
    if (schema.divisor) {
      auto multiple = json_.multiple_of(*schema.divisor);
      if (multiple) return multiple;
      return error(StatusCode::kInvalidArgument, "JSON schema: so many divisors are not supported");
    }
    if (schema.bounds.least || schema.bounds.most) {
      return grammar_.limited("bounded", numbers_within(grammar_, schema.bounds, whole),
                              kMostDigits);
    }
    return whole ? json_.integer() : json_.number();
  }

  Result<Expression> string(const Schema& schema) {
    if (schema.texts != nullptr) {
      return json_.string_of(schema.texts->json_texts(grammar_, json_));
    }
    if (!schema.pattern.empty()) {
      KAKEYA_ASSIGN_OR_RETURN(Expression content,
                              json_texts_that_match(grammar_, json_, schema.pattern));
      return grammar_.shared("matching", json_.string_of(std::move(content)));
    }
    if (schema.least == 0 && !schema.most) return json_.string();
    return json_.string(schema.least, schema.most);
  }

  // Items behind the first of an array: a comma, at most one blank, the item.
  Expression next(const Expression& item) {
    return sequence_of({text_of(","), json_.blank(), item});
  }

  Result<Expression> array(const Schema& schema) {
    const Expression end = sequence_of({json_.blank(), text_of("]")});
    std::vector<Expression> first;  // items that have schemas of their own
    for (const Schema& part : schema.parts) {
      if (schema.most && std::ssize(first) == *schema.most) break;
      KAKEYA_ASSIGN_OR_RETURN(Expression item, value(part));
      first.push_back(std::move(item));
    }
    const std::int64_t fixed = std::ssize(first);
    std::optional<Expression> rest;
    if (!schema.rest.empty()) {
      KAKEYA_ASSIGN_OR_RETURN(rest, value(schema.rest.front()));
    }
    // The end of an array behind the items with schemas of their own, or behind one item of the
    // others.
    const auto further = [&](std::int64_t behind) -> Expression {
      if (!rest) return schema.least > behind ? never() : end;
      std::optional<std::int64_t> most;
      if (schema.most) most = std::max<std::int64_t>(0, *schema.most - behind);
      const std::int64_t least = std::max<std::int64_t>(0, schema.least - behind);
      return sequence_of({items(next(*rest), least, most), end});
    };
    std::vector<Expression> ways;
    if (schema.least == 0) ways.push_back(end);
    if (fixed > 0) {
      Expression tail = grammar_.shared("tail", further(fixed));
      for (std::int64_t i = fixed - 1; i > 0; --i) {
        Expression more = sequence_of({next(first[static_cast<std::size_t>(i)]), std::move(tail)});
        tail = grammar_.shared(
            "tail", i < schema.least ? std::move(more) : choice_of({end, std::move(more)}));
      }
      ways.push_back(sequence_of({json_.blank(), first[0], std::move(tail)}));
    } else if (rest && schema.most != 0) {
      ways.push_back(sequence_of({json_.blank(), *rest, grammar_.shared("tail", further(1))}));
    }
    return grammar_.shared("array", sequence_of({text_of("["), choice_of(std::move(ways))}));
  }

  Expression items(const Expression& item, std::int64_t least, std::optional<std::int64_t> most) {
    constexpr std::int64_t kFewItems = 16;
    const bool few = std::max(least, most.value_or(0)) <= kFewItems;
    return few ? grammar_.repeated(item, least, most) : grammar_.counted(item, least, most);
  }

  // The members of one object, in their order.
  struct Members {
    const Schema& schema;
    std::vector<Expression> texts = {};  // "NAME": VALUE
    std::vector<bool> required = {};
    bool counted = false;
    std::optional<Expression> first_other = {};  // of an open object: behind none, and what follows
    std::optional<Expression> next_other = {};   // behind one
    std::map<std::pair<std::size_t, std::int64_t>, Expression> known = {};
  };

  using Property = std::pair<std::string, Schema>;

  // Members in the schema's order, which models of JSON keep; Gemma's templates sort them, whatever
  // their case.
  std::vector<const Property*> in_order(const Schema& schema) const {
    std::vector<const Property*> properties;
    for (const Property& property : schema.properties) properties.push_back(&property);
    if (json_.notation().is_json()) return properties;
    const auto lower = [](const Property* property) {
      std::string name = property->first;
      for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      return name;
    };
    std::ranges::stable_sort(properties, {}, lower);
    return properties;
  }

  Result<Expression> object(const Schema& schema) {
    Members members = {.schema = schema};
    std::vector<std::u32string> names;
    for (const auto* property : in_order(schema)) {
      const auto& [name, its] = *property;
      KAKEYA_ASSIGN_OR_RETURN(Expression read, value(its));
      members.texts.push_back(sequence_of({json_.key(name), json_.blank(), std::move(read)}));
      members.required.push_back(std::ranges::find(schema.required, name) != schema.required.end());
      names.push_back(code_points(name));
    }
    members.counted = schema.least > 0 || schema.most;
    if (!schema.rest.empty()) {
      KAKEYA_ASSIGN_OR_RETURN(const Expression other, value(schema.rest.front()));
      add_others(sequence_of({json_.other_key(names), json_.blank(), other}), members);
    }
    return grammar_.shared("object",
                           sequence_of({text_of("{"), members.counted ? members_from(0, 0, members)
                                                                      : all_members(members)}));
  }

  // The members of an object that does not count them. Halves of halves: in a chain of members that
  // may all be left out, the engine's time for a text grows with the third power of their number.
  Expression all_members(const Members& members) {
    const std::size_t count = members.texts.size();
    const Expression none = members.first_other.value_or(object_end());
    const Expression behind = members.next_other.value_or(object_end());
    std::vector<Expression> ways;
    if (count > 0)
      ways.push_back(sequence_of({json_.blank(), first_of(0, count, members), behind}));
    if (may_be_left_out(0, count, members)) ways.push_back(none);
    return grammar_.shared("members", choice_of(std::move(ways)));
  }

  static bool may_be_left_out(std::size_t begin, std::size_t end, const Members& members) {
    const auto required = members.required.begin();
    return std::find(required + static_cast<std::ptrdiff_t>(begin),
                     required + static_cast<std::ptrdiff_t>(end),
                     true) == required + static_cast<std::ptrdiff_t>(end);
  }

  // One or more of the members [begin, end), the first of an object among them.
  Expression first_of(std::size_t begin, std::size_t end, const Members& members) {
    if (end - begin == 1) return members.texts[begin];
    const std::size_t middle = begin + (end - begin) / 2;
    std::vector<Expression> ways = {
        sequence_of({first_of(begin, middle, members), more_of(middle, end, members)})};
    if (may_be_left_out(begin, middle, members)) ways.push_back(first_of(middle, end, members));
    return grammar_.shared("first", choice_of(std::move(ways)));
  }

  // Any of the members [begin, end), behind others.
  Expression more_of(std::size_t begin, std::size_t end, const Members& members) {
    if (end - begin == 1) {
      const Expression more = next(members.texts[begin]);
      return members.required[begin] ? more : grammar_.shared("more", optional_of(more));
    }
    const std::size_t middle = begin + (end - begin) / 2;
    return grammar_.shared(
        "more", sequence_of({more_of(begin, middle, members), more_of(middle, end, members)}));
  }

  Expression object_end() { return sequence_of({json_.blank(), text_of("}")}); }

  void add_others(const Expression& member, Members& members) {
    const Expression end = object_end();
    const std::optional<std::int64_t> most = members.schema.most;
    std::optional<std::int64_t> more;
    if (most) more = std::max<std::int64_t>(0, *most - 1);
    members.next_other =
        grammar_.shared("others", sequence_of({items(next(member), 0, more), end}));
    members.first_other = end;
    if (most == 0) return;
    members.first_other = grammar_.shared(
        "others", choice_of({end, sequence_of({json_.blank(), member, *members.next_other})}));
  }

  // The rest of an object that counts its members, where the first `at` of them were written or
  // left out, and `written` are there.
  Expression members_from(std::size_t at, std::int64_t written, Members& members) {
    const auto known = members.known.find({at, written});
    if (known != members.known.end()) return known->second;
    const Schema& schema = members.schema;
    Expression result = never();
    if (schema.rest.empty() && schema.most && written > *schema.most) {
      return result;
    }
    if (at == members.texts.size()) {
      if (!schema.rest.empty()) {
        result = written > 0 ? *members.next_other : *members.first_other;
      } else if (written >= schema.least) {
        result = object_end();
      }
    } else {
      const Expression before =
          written > 0 ? sequence_of({text_of(","), json_.blank()}) : json_.blank();
      std::vector<Expression> ways = {
          sequence_of({before, members.texts[at], members_from(at + 1, written + 1, members)})};
      if (!members.required[at]) ways.push_back(members_from(at + 1, written, members));
      result = grammar_.shared("members", choice_of(std::move(ways)));
    }
    members.known.emplace(std::pair(at, written), result);
    return result;
  }

  Grammar& grammar_;
  JsonRules& json_;
  const SchemaDocument& document_;
  std::vector<RuleId> definitions_;
};

}  // namespace

Result<Expression> values_of(Grammar& grammar, JsonRules& json, const SchemaDocument& document) {
  return SchemaRules(grammar, json, document).root();
}

}  // namespace kakeya::service
