// Kinds of reports agree with themselves: what they say of fields is said of fields that are there.
#include "eval/report/report_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "eval/report/report_kinds.h"

namespace kakeya::eval {
namespace {

// Says whether a field of the last version is at `at`, or below it: "sets/*/windows".
bool has_field(const ReportKind& kind, const std::string& at) {
  const std::vector<std::string> names = names_of(at);
  return std::ranges::any_of(kind.schemas.back().fields, [&](const ReportField& field) {
    std::vector<std::string> beginning = field.names;
    if (beginning.size() < names.size()) return false;
    beginning.resize(names.size());
    for (std::string& name : beginning) {
      if (name.size() > 1 && name.ends_with('?')) name.pop_back();
    }
    return beginning == names;
  });
}

TEST(ReportKind, IsFoundByItsSchemas) {
  std::set<std::string_view> names;
  std::set<std::string_view> commands;
  for (const auto kind_of : kReportKinds) {
    const ReportKind& kind = kind_of();
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
    ASSERT_FALSE(kind.schemas.empty()) << kind.name;
    for (const ReportSchema& schema : kind.schemas) {
      const std::string text = std::string(kind.name) + "/" + std::to_string(schema.version);
      EXPECT_EQ(find_report_kind(text), &kind) << text;
      EXPECT_EQ(report_fields(text).data(), schema.fields.data()) << text;
    }
    for (const std::string_view command : kind.commands) {
      EXPECT_TRUE(commands.insert(command).second) << command;
    }
    EXPECT_EQ(kind.commands.empty(), kind.flags.empty()) << kind.name;
  }
  EXPECT_EQ(find_report_kind("kakeya.eval"), nullptr);
  EXPECT_TRUE(report_fields("kakeya.eval.spec").empty());
  EXPECT_TRUE(report_fields("kakeya.eval.spec/03").empty());
}

// A path that no field has would be compared with nothing.
TEST(ReportKind, SpeaksOfFieldsThatItHas) {
  for (const auto kind_of : kReportKinds) {
    const ReportKind& kind = kind_of();
    std::vector<std::string> paths;
    for (const UniqueRows& unique : kind.unique_rows) {
      for (const std::string_view key : unique.keys) {
        paths.push_back(std::string(unique.list) + "/*/" + std::string(key));
      }
    }
    for (const PairedSamples& paired : kind.paired_samples) {
      for (const std::string_view list : {paired.one, paired.other}) {
        paths.push_back(std::string(paired.rows) + "/" + std::string(list) + "/*");
      }
    }
    for (const std::string_view at : kind.timed_samples) paths.emplace_back(at);
    for (const std::string& path : paths) EXPECT_TRUE(has_field(kind, path)) << kind.name << path;
  }
}

}  // namespace
}  // namespace kakeya::eval
