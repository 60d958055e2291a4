// The fields that each kind of report has, as data: what must be there, of which type, and what
// stands behind it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kakeya::eval {

using Report = nlohmann::ordered_json;

enum class FieldType : std::uint8_t {
  kText,
  kWord,     // of a command line: a text that may be empty
  kCommit,   // 40 hexadecimal digits
  kHash,     // 16, 32 or 64 of them
  kTime,     // 2026-11-23T18:53:06Z
  kCount,    // an integer, 0 or more
  kLimit,    // a count, or -1: as many as pay
  kNumber,   // finite, 0 or more
  kSeconds,  // finite, more than 0
  kShare,    // 0 to 1
  kFlag,
};

// Names a value of the type, for messages: "a count", "a share of 0 to 1".
const char* type_text(FieldType type);

// Why a wrong value would be seen.
enum class FieldRole : std::uint8_t {
  kChecked,   // a rule compares it with others
  kMeasured,  // a sample: what is claimed is computed from samples anew
  kStated,    // circumstances: command, machine, load
  kResult,    // a claim whose samples are not kept: only another run can confirm it
};

// `names`: the way to it; '*' stands for every element of a list, '?' behind a name says that it
// may be missing, with all below it.
struct ReportField {
  std::vector<std::string> names;
  FieldType type = FieldType::kText;
  FieldRole role = FieldRole::kStated;
};

// The fields of a kind of reports, as its "schema" says; empty for one that is not known.
std::span<const ReportField> report_fields(std::string_view schema);

// A problem of a report: "sets/0/tokens", "expected a count, got -1".
struct FieldProblem {
  std::string at;
  std::string says;
};

// Fields that are missing, are not known or are of another type.
std::vector<FieldProblem> check_fields(const Report& report, std::span<const ReportField> fields);

// "sets/0/tokens": sets, 0, tokens.
std::vector<std::string> names_of(std::string_view path);

// The field that stands for a value at `at` ("sets/0/tokens"); null: none.
const ReportField* find_field(std::span<const ReportField> fields, std::string_view at);

}  // namespace kakeya::eval
