// The claims of reports, in one form for every kind: rows that can be drawn and compared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eval/report/report_fields.h"

namespace kakeya::eval {

enum class Better : std::uint8_t { kMore, kLess, kNeither };

struct Claim {
  std::string name;  // "needle"
  double value = 0.0;
  std::optional<std::pair<double, double>> interval = {};  // what ClaimGroup::interval says
  std::vector<double> samples = {};                        // that the value is the median of
};

struct ClaimGroup {
  std::string title;  // "time of speculative decoding"
  std::string unit;   // "times plain decoding"
  Better better = Better::kNeither;
  std::optional<double> reference = {};  // what the values are to be seen against
  std::string interval = {};             // "least and most of the samples"
  std::vector<Claim> claims = {};
};

// The claims of a report whose fields were checked (check_fields); empty for an unknown kind.
std::vector<ClaimGroup> claims_of(const Report& report);

inline constexpr const char* kConfidence = "95 % interval";
// For claims whose interval is the least and the most of their samples.
inline constexpr const char* kSpread = "least and most of the samples";
Claim claim_of_samples(std::string name, std::vector<double> samples);
// The text or the number at a field.
std::string field_text(const Report& value);
double field_number(const Report& value);
// Ratios element by element, of as many as both have.
std::vector<double> ratios(const std::vector<double>& of, const std::vector<double>& to);

enum class Verdict : std::uint8_t {
  kBetter,
  kWorse,
  kUndecided,  // the interval holds "no difference"
  kEqual,      // the same number
  kOther,      // another number, without samples that say how sure that is
};

// A claim of two reports.
struct ClaimChange {
  std::string group;
  std::string name;
  std::string unit;
  double before = 0.0;
  double after = 0.0;
  // Bounds of after / before, from samples drawn anew: 95 of 100 ratios of medians are between
  // them.
  std::optional<std::pair<double, double>> ratio = {};
  Verdict verdict = Verdict::kOther;
};

// Claims that both reports have, in the order of `after`. Where both have five samples or more, the
// interval of their ratio decides; else intervals that do not meet. The same reports, the same
// verdicts. Both must have passed check_fields.
std::vector<ClaimChange> compare_claims(const Report& before, const Report& after);

}  // namespace kakeya::eval
