// The description of a report's fields, once for all who deal with them.
//
// A struct of a report has one function that names its fields in the order of the report:
//
//   template <typename Visitor, MaybeConst<LongRunBucket> Bucket>
//   void describe(Visitor& visitor, Bucket& bucket) {
//     visitor.field("tokens", bucket.tokens, FieldRole::kChecked);
//     visitor.derived("tokens_per_second", bucket, &LongRunBucket::tokens_per_second, "headline");
//   }
//
// Visitors follow it: JsonWriter writes reports and journals, JsonReader reads both, FieldLister
// makes the list of what the gate demands, and DerivedChecks (derived_checks.h) compares what a
// report says with what its rows give. Adding a field takes a member of the struct and a line in
// this function, which stand in one file; one that kept reports lack is optional, and a rule asks
// for it from a version on (docs/evidence.md). Every visitor has these functions:
//
//   field(name, value, role, type)     a field that is always there; a list has one value or more
//   optional(name, value, role, type)  left out where it is empty
//   kept(name, value)                  in journals alone
//   derived(name, of, member, rule, type)  computed by a member; `rule` is the gate's name of
//                                          where it differs; left out where it is an empty optional
//   object(name, value)                a struct with a description of its own
//   list(name, rows, how_many)         a list of such structs
//   group(first, is_there, members)    fields that are all there or not at all; `first` is the
//                                      name of the first one
//
// `type` follows from the C++ type unless it is narrower: a hash, seconds, a share.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"
#include "eval/report/field_reader.h"
#include "eval/report/report_fields.h"

namespace kakeya::eval {

// A struct, constant or not: writers do not change what readers fill in.
template <typename Type, typename Struct>
concept MaybeConst = std::same_as<std::remove_const_t<Type>, Struct>;

enum class HowMany : std::uint8_t { kOneOrMore, kAny };

// The structs of a journal have fields that reports do not repeat.
enum class WrittenFor : std::uint8_t { kReport, kJournal };

template <typename Value>
struct PlainType {
  using Type = Value;
};
template <typename Value>
struct PlainType<std::optional<Value>> {
  using Type = Value;
};
template <typename Value>
struct PlainType<std::vector<Value>> {
  using Type = typename PlainType<Value>::Type;
};

template <typename Value>
inline constexpr bool kIsOptional = false;
template <typename Value>
inline constexpr bool kIsOptional<std::optional<Value>> = true;
template <typename Value>
inline constexpr bool kIsList = false;
template <typename Value>
inline constexpr bool kIsList<std::vector<Value>> = true;

// The type of a field that holds such a value, or a list of it.
template <typename Value>
constexpr FieldType field_type_of() {
  using Plain = typename PlainType<std::remove_cvref_t<Value>>::Type;
  if constexpr (std::same_as<Plain, bool>) {
    return FieldType::kFlag;
  } else if constexpr (std::integral<Plain>) {
    return FieldType::kCount;
  } else if constexpr (std::floating_point<Plain>) {
    return FieldType::kNumber;
  } else {
    static_assert(std::same_as<Plain, std::string>, "fields are texts, flags and numbers");
    return FieldType::kText;
  }
}

template <typename Struct, typename Member>
using DerivedValue = std::remove_cvref_t<std::invoke_result_t<Member, const Struct&>>;

// Adds the fields of structs to a JSON object.
class JsonWriter {
 public:
  // Refers to `to`.
  explicit JsonWriter(Report& to, WrittenFor written_for = WrittenFor::kReport)
      : to_(to), written_for_(written_for) {}

  template <typename Value>
  void field(const char* name,
             const Value& value,
             FieldRole /*role*/,
             FieldType /*type*/ = field_type_of<Value>()) {
    to_[name] = value;
  }
  template <typename Value>
  void optional(const char* name,
                const Value& value,
                FieldRole /*role*/,
                FieldType /*type*/ = field_type_of<Value>()) {
    if constexpr (kIsOptional<Value>) {
      if (value) to_[name] = *value;
    } else {
      if (!value.empty()) to_[name] = value;
    }
  }
  template <typename Value>
  void kept(const char* name, const Value& value) {
    if (written_for_ == WrittenFor::kJournal) to_[name] = value;
  }
  template <typename Struct, typename Member>
  void derived(const char* name,
               const Struct& of,
               Member member,
               const char* /*rule*/,
               FieldType /*type*/ = field_type_of<DerivedValue<Struct, Member>>()) {
    const DerivedValue<Struct, Member> value = std::invoke(member, of);
    if constexpr (kIsOptional<DerivedValue<Struct, Member>>) {
      if (value) to_[name] = *value;
    } else {
      to_[name] = value;
    }
  }
  template <typename Struct>
  void object(const char* name, const Struct& value) {
    JsonWriter inner(to_[name] = Report::object(), written_for_);
    describe(inner, value);
  }
  template <typename Row>
  void list(const char* name, const std::vector<Row>& rows, HowMany /*how_many*/) {
    Report& list = to_[name] = Report::array();
    for (const Row& row : rows) {
      list.push_back(Report::object());
      JsonWriter inner(list.back(), written_for_);
      describe(inner, row);
    }
  }
  template <typename Members>
  void group(const char* /*first*/, bool is_there, Members&& members) {
    if (is_there) members(*this);
  }

 private:
  Report& to_;
  WrittenFor written_for_;
};

// Fills structs in from a JSON object, up to the first field that is missing or does not fit into
// its C++ type; the gate alone knows of ranges. Derived fields are left to DerivedChecks.
class JsonReader {
 public:
  // Refers to `from`; `at` is the way to it, for errors.
  JsonReader(const Report& from, WrittenFor written_for, std::string at = {})
      : from_(from), written_for_(written_for), at_(std::move(at)) {
    if (!from.is_object()) refuse(at_, "an object", from);
  }

  // The first field that does not fit: "arms/0/drafts", "expected true or false, got 3".
  const std::optional<FieldProblem>& problem() const { return problem_; }

  template <typename Value>
  void field(const char* name,
             Value& to,
             FieldRole /*role*/,
             FieldType type = field_type_of<Value>()) {
    if (is_there(name)) take(name, to, type);
  }
  template <typename Value>
  void optional(const char* name,
                Value& to,
                FieldRole /*role*/,
                FieldType type = field_type_of<Value>()) {
    if (problem_ || !from_.contains(name)) return;
    if constexpr (kIsOptional<Value>) {
      take(name, to.emplace(), type);
    } else {
      take(name, to, type);
    }
  }
  template <typename Value>
  void kept(const char* name, Value& to) {
    if (written_for_ == WrittenFor::kJournal && is_there(name)) {
      take(name, to, field_type_of<Value>());
    }
  }
  template <typename Struct, typename Member>
  void derived(const char* /*name*/,
               const Struct& /*of*/,
               Member /*member*/,
               const char* /*rule*/,
               FieldType /*type*/ = field_type_of<DerivedValue<Struct, Member>>()) {}
  template <typename Struct>
  void object(const char* name, Struct& to) {
    if (is_there(name)) take_struct(from_[name], below(name), to);
  }
  template <typename Row>
  void list(const char* name, std::vector<Row>& to, HowMany /*how_many*/) {
    if (!is_there(name)) return;
    const Report& rows = from_[name];
    if (!rows.is_array()) return refuse(below(name), "a list", rows);
    to.clear();
    for (std::size_t i = 0; i < rows.size() && !problem_; ++i) {
      take_struct(rows[i], below(name) + "/" + std::to_string(i), to.emplace_back());
    }
  }
  template <typename Members>
  void group(const char* first, bool /*is_there*/, Members&& members) {
    if (!problem_ && from_.contains(first)) members(*this);
  }

 private:
  std::string below(const char* name) const { return at_.empty() ? name : at_ + "/" + name; }
  // False, too, after a problem.
  bool is_there(const char* name);
  void refuse(const std::string& at, const char* expected, const Report& got);
  template <typename Value>
  void take(const char* name, Value& to, FieldType type) {
    if (FieldReader::read(from_[name], to)) return;
    refuse(below(name), kIsList<Value> ? "a list of such values" : type_text(type), from_[name]);
  }
  template <typename Struct>
  void take_struct(const Report& from, std::string at, Struct& to) {
    JsonReader inner(from, written_for_, std::move(at));
    if (!inner.problem_) describe(inner, to);
    problem_ = std::move(inner.problem_);
  }

  const Report& from_;
  WrittenFor written_for_;
  std::string at_;
  std::optional<FieldProblem> problem_;
};

// Lists the fields of structs, with types and roles.
class FieldLister {
 public:
  // Refers to `to`; `at` is the way to the struct.
  explicit FieldLister(std::vector<ReportField>& to, std::vector<std::string> at = {})
      : to_(to), at_(std::move(at)) {}

  template <typename Value>
  void field(const char* name,
             const Value& /*value*/,
             FieldRole role,
             FieldType type = field_type_of<Value>()) {
    add(name, kIsList<Value>, role, type);
  }
  template <typename Value>
  void optional(const char* name,
                const Value& /*value*/,
                FieldRole role,
                FieldType type = field_type_of<Value>()) {
    add(std::string(name) + "?", kIsList<Value>, role, type);
  }
  template <typename Value>
  void kept(const char* /*name*/, const Value& /*value*/) {}
  template <typename Struct, typename Member>
  void derived(const char* name,
               const Struct& /*of*/,
               Member /*member*/,
               const char* /*rule*/,
               FieldType type = field_type_of<DerivedValue<Struct, Member>>()) {
    using Value = DerivedValue<Struct, Member>;
    add(std::string(name) + (kIsOptional<Value> ? "?" : ""), kIsList<Value>, FieldRole::kChecked,
        type);
  }
  template <typename Struct>
  void object(const char* name, const Struct& value) {
    FieldLister inner(to_, below({name}));
    describe(inner, value);
  }
  template <typename Row>
  void list(const char* name, const std::vector<Row>& /*rows*/, HowMany how_many) {
    FieldLister inner(to_, below({name, how_many == HowMany::kAny ? "*?" : "*"}));
    const Row row = {};
    describe(inner, row);
  }
  template <typename Members>
  void group(const char* /*first*/, bool /*is_there*/, Members&& members) {
    FieldLister inner(to_, at_);
    inner.may_be_missing_ = true;
    members(inner);
  }

 private:
  std::vector<std::string> below(std::initializer_list<std::string> names) const;
  void add(std::string name, bool is_list, FieldRole role, FieldType type);

  std::vector<ReportField>& to_;
  std::vector<std::string> at_;
  bool may_be_missing_ = false;
};

// Adds a struct's fields to a report, or to a journal's line.
template <typename Struct>
void write_fields(Report& to, const Struct& value, WrittenFor written_for = WrittenFor::kReport) {
  JsonWriter writer(to, written_for);
  describe(writer, value);
}

// Errors: kDataLoss, "arms/0/drafts: expected true or false, got 3".
template <typename Struct>
Result<Struct> read_fields(const Report& from, WrittenFor written_for = WrittenFor::kReport) {
  JsonReader reader(from, written_for);
  Struct value = {};
  if (!reader.problem()) describe(reader, value);
  if (!reader.problem()) return value;
  return data_loss("{}: {}", reader.problem()->at, reader.problem()->says);
}

template <typename Struct>
std::vector<ReportField> list_fields() {
  std::vector<ReportField> fields;
  FieldLister lister(fields);
  const Struct value = {};
  describe(lister, value);
  return fields;
}

}  // namespace kakeya::eval
