// One description of fields: it is written in its order, read back, listed with types and roles,
// and compared with what rows give.
#include "eval/report/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "eval/drafter/drafter_parity_report.h"
#include "eval/longrun/longrun_report.h"
#include "eval/multitenant/multitenant_report.h"
#include "eval/overlap/overlap_report.h"
#include "eval/report/derived_checks.h"
#include "eval/report/made_reports.h"

namespace kakeya::eval {

struct DescribedRow {
  std::string name = {};
  std::int64_t tokens = 0;
  double seconds = 0.0;
  std::string sha256 = {};
  std::optional<std::int64_t> differs_at = {};
  std::vector<int> ids = {};

  double speed() const { return static_cast<double>(tokens) / seconds; }
};

struct DescribedReport {
  bool complete = false;
  std::vector<double> samples = {};
  std::vector<DescribedRow> rows = {};

  std::int64_t tokens() const {
    std::int64_t tokens = 0;
    for (const DescribedRow& row : rows) tokens += row.tokens;
    return tokens;
  }
};

template <typename Visitor, MaybeConst<DescribedRow> Row>
void describe(Visitor& visitor, Row& row) {
  visitor.field("name", row.name, FieldRole::kStated);
  visitor.group("tokens", row.tokens > 0, [&](auto& members) {
    members.field("tokens", row.tokens, FieldRole::kMeasured);
    members.field("seconds", row.seconds, FieldRole::kMeasured, FieldType::kSeconds);
    members.optional("differs_at", row.differs_at, FieldRole::kChecked);
    members.derived("speed", row, &DescribedRow::speed, "headline");
  });
  visitor.optional("sha256", row.sha256, FieldRole::kResult, FieldType::kHash);
  visitor.kept("ids", row.ids);
}

template <typename Visitor, MaybeConst<DescribedReport> Described>
void describe(Visitor& visitor, Described& report) {
  visitor.field("complete", report.complete, FieldRole::kChecked);
  visitor.field("samples", report.samples, FieldRole::kMeasured, FieldType::kSeconds);
  visitor.list("rows", report.rows, HowMany::kAny);
  visitor.derived("tokens", report, &DescribedReport::tokens, "counts");
}

namespace {

using testing::ElementsAre;

DescribedReport described() {
  return {.complete = true,
          .samples = {0.5, 0.25},
          .rows = {{.name = "a", .tokens = 6, .seconds = 2.0, .ids = {1, 2}}, {.name = "b"}}};
}

Report written(WrittenFor written_for) {
  Report json;
  write_fields(json, described(), written_for);
  return json;
}

TEST(Describe, WritesFieldsInTheirOrder) {
  EXPECT_EQ(written(WrittenFor::kReport).dump(),
            R"({"complete":true,"samples":[0.5,0.25],"rows":[{"name":"a","tokens":6,)"
            R"("seconds":2.0,"speed":3.0},{"name":"b"}],"tokens":6})");
  EXPECT_EQ(written(WrittenFor::kJournal)["rows"][0]["ids"], Report({1, 2}));
}

TEST(Describe, ReadsWhatItWrote) {
  for (const WrittenFor written_for : {WrittenFor::kReport, WrittenFor::kJournal}) {
    const Report json = written(written_for);
    const auto read = read_fields<DescribedReport>(json, written_for);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(read->rows[0].ids.empty(), written_for == WrittenFor::kReport);
    Report again;
    write_fields(again, *read, written_for);
    EXPECT_EQ(again, json);
  }
}

std::string refusal_of(const std::function<void(Report&)>& change) {
  Report json = written(WrittenFor::kJournal);
  change(json);
  const auto read = read_fields<DescribedReport>(json, WrittenFor::kJournal);
  return read ? "" : read.error().message();
}

TEST(Describe, RefusalsNameTheFieldWhatWasExpectedAndWhatWasGot) {
  EXPECT_EQ(refusal_of([](Report& r) { r["complete"] = 1; }),
            "complete: expected true or false, got 1");
  EXPECT_EQ(refusal_of([](Report& r) { r["rows"][1].erase("name"); }),
            "rows/1/name: expected it to be there, got nothing");
  EXPECT_EQ(refusal_of([](Report& r) { r["rows"][0]["seconds"] = "2"; }),
            "rows/0/seconds: expected seconds above 0, got \"2\"");
  EXPECT_EQ(refusal_of([](Report& r) { r["rows"][0].erase("seconds"); }),
            "rows/0/seconds: expected it to be there, got nothing")
      << "a group is whole";
  EXPECT_EQ(refusal_of([](Report& r) { r["rows"][0].erase("ids"); }),
            "rows/0/ids: expected it to be there, got nothing");
  EXPECT_EQ(refusal_of([](Report& r) { r["rows"] = 3; }), "rows: expected a list, got 3");
  EXPECT_EQ(refusal_of([](Report& r) { r["rows"][1] = 3; }), "rows/1: expected an object, got 3");
  EXPECT_EQ(refusal_of([](Report& r) { r["samples"][1] = true; }),
            "samples: expected a list of such values, got [0.5,true]");
}

TEST(Describe, ListsTypesAndRoles) {
  std::vector<std::string> lines;
  for (const ReportField& field : list_fields<DescribedReport>()) {
    std::string& line = lines.emplace_back();
    for (const std::string& name : field.names) line += (line.empty() ? "" : "/") + name;
    line += std::string(", ") + type_text(field.type);
    if (field.role == FieldRole::kChecked) line += ", checked";
  }
  EXPECT_THAT(lines, ElementsAre("complete, true or false, checked", "samples/*, seconds above 0",
                                 "rows/*?/name, a text", "rows/*?/tokens?, a count",
                                 "rows/*?/seconds?, seconds above 0",
                                 "rows/*?/differs_at?, a count, checked",
                                 "rows/*?/speed?, a number of 0 or more, checked",
                                 "rows/*?/sha256?, a hash of 16, 32 or 64 hexadecimal digits",
                                 "tokens, a count, checked"));
}

TEST(Describe, DerivedFieldsAreThoseOfTheRows) {
  Report json = written(WrittenFor::kReport);
  json["tokens"] = 7;
  json["rows"][0]["speed"] = 3.5;
  std::vector<GateFinding> findings;
  RuleChecks checks(findings);
  check_derived(json, described(), checks);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].rule, std::string("headline"));
  EXPECT_EQ(findings[0].at, "rows/0/speed");
  EXPECT_EQ(findings[0].says, "expected 3, got 3.5");
  EXPECT_EQ(findings[1].at, "tokens");
  json.erase("tokens");
  findings.clear();
  check_derived(json, described(), checks);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[1].says, "expected it to be there, got nothing");
}

// Reads a kept report into its struct and writes it again: the same bytes in the same order.
template <typename Struct>
void expect_written_again(const std::string& name) {
  const Report kept = kept_report(name);
  const auto read = read_fields<Struct>(kept);
  ASSERT_TRUE(read) << name << ": " << read.error().message();
  Report again;
  write_fields(again, *read);
  Report expected;
  for (const auto& [field, value] : kept.items()) {
    if (again.contains(field)) expected[field] = value;
  }
  EXPECT_EQ(again.dump(), expected.dump()) << name;
}

TEST(Describe, KeptReportsAreWrittenAsTheyWere) {
  expect_written_again<LongRunReport>("longrun");
  expect_written_again<TenantsReport>("multitenant");
  expect_written_again<ParityReport>("drafter-parity");
  expect_written_again<OverlapReport>("overlap");
}

}  // namespace
}  // namespace kakeya::eval
