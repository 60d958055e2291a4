// Compares the derived fields of a report (describe.h) with what its rows give.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eval/report/describe.h"
#include "eval/report/report_rules.h"

namespace kakeya::eval {

class DerivedChecks {
 public:
  // Refers to `report`, which the described struct was read from, and to `checks`.
  DerivedChecks(const Report& report, RuleChecks& checks, std::string at = {})
      : report_(report), checks_(checks), at_(std::move(at)) {}

  template <typename Value>
  void field(const char* /*name*/,
             const Value& /*value*/,
             FieldRole /*role*/,
             FieldType /*type*/ = FieldType::kText) {}
  template <typename Value>
  void optional(const char* /*name*/,
                const Value& /*value*/,
                FieldRole /*role*/,
                FieldType /*type*/ = FieldType::kText) {}
  template <typename Value>
  void kept(const char* /*name*/, const Value& /*value*/) {}
  template <typename Struct, typename Member>
  void derived(const char* name,
               const Struct& of,
               Member member,
               const char* rule,
               FieldType /*type*/ = FieldType::kText) {
    compare(name, std::invoke(member, of), rule);
  }
  template <typename Struct>
  void object(const char* name, const Struct& value) {
    DerivedChecks inner(report_[name], checks_, below(name));
    describe(inner, value);
  }
  template <typename Row>
  void list(const char* name, const std::vector<Row>& rows, HowMany /*how_many*/) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      DerivedChecks inner(report_[name][i], checks_, below(name) + "/" + std::to_string(i));
      describe(inner, rows[i]);
    }
  }
  template <typename Members>
  void group(const char* /*first*/, bool is_there, Members&& members) {
    if (is_there) members(*this);
  }

 private:
  std::string below(const char* name) const { return at_.empty() ? name : at_ + "/" + name; }

  template <typename Value>
  void compare(const char* name, const std::optional<Value>& expected, const char* rule) {
    if (expected) return compare(name, *expected, rule);
    checks_.expect(!report_.contains(name), rule, below(name), "expected no such field here");
  }
  template <typename Value>
  void compare(const char* name, const Value& expected, const char* rule) {
    if (!report_.contains(name)) {
      checks_.expect(false, rule, below(name), "expected it to be there, got nothing");
    } else if constexpr (std::same_as<Value, bool>) {
      const bool equal = report_[name] == expected;
      checks_.expect(equal, rule, below(name),
                     expected ? "expected true, got false" : "expected false, got true");
    } else if constexpr (std::integral<Value>) {
      checks_.expect_count(static_cast<std::int64_t>(expected), report_[name], rule, below(name));
    } else {
      checks_.expect_number(expected, report_[name], rule, below(name));
    }
  }

  const Report& report_;
  RuleChecks& checks_;
  std::string at_;
};

// The struct that a report was written from; nothing if its fields do not fit, which is a finding.
template <typename Struct>
std::optional<Struct> read_report_fields(const Report& report, RuleChecks& checks) {
  JsonReader reader(report, WrittenFor::kReport);
  Struct value = {};
  if (!reader.problem()) describe(reader, value);
  if (!reader.problem()) return value;
  checks.expect(false, "fields", reader.problem()->at, reader.problem()->says);
  return std::nullopt;
}

template <typename Struct>
void check_derived(const Report& report, const Struct& value, RuleChecks& checks) {
  DerivedChecks derived(report, checks);
  describe(derived, value);
}

}  // namespace kakeya::eval
