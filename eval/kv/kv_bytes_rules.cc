#include "eval/kv/kv_bytes_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "eval/report/kv_modes.h"
#include "tensor/kv_format.h"

namespace kakeya::eval {
namespace {

// The bytes of one text's exact mode, and how they came about.
struct ExactBytes {
  std::int64_t full = 0;
  std::int64_t sliding = 0;
  std::int64_t length = 0;  // rows
  std::int64_t chunk = 0;   // rows that are there before others go
  KvFormat format = KvFormat::kBf16;
};

constexpr std::array<std::int64_t, 9> kHeadDims = {32, 48, 64, 80, 96, 128, 192, 256, 512};

// Says whether so many bytes of vectors become so many others in a format, of whatever elements a
// vector has.
bool fits_format(std::int64_t from, std::int64_t bytes, KvFormat exact, KvFormat format) {
  return std::ranges::any_of(kHeadDims, [&](std::int64_t elements) {
    const std::int64_t vector = kv_vector_bytes(exact, elements);
    return from % vector == 0 && from / vector * kv_vector_bytes(format, elements) == bytes;
  });
}

// Rows in a format of their own, or as the exact mode has them.
void check_stored(std::int64_t exact,
                  const Report& bytes,
                  KvType type,
                  const ExactBytes& of,
                  const std::string& at,
                  RuleChecks& checks) {
  if (type == KvType::kAuto) return checks.expect_count(exact, bytes, "bytes", at);
  const KvFormat format = kv_format_of(type);
  checks.expect(fits_format(exact, count(bytes), of.format, format), "bytes", at,
                fmt::format("expected {} bytes of the exact mode as {}, got {}", exact,
                            kv_format_name(format), count(bytes)));
}

void check_full_bytes(const Report& mode,
                      const KvMode& known,
                      const ExactBytes& exact,
                      const std::string& at,
                      RuleChecks& checks) {
  const Report& bytes = mode["kv_bytes"];
  const SessionOptions& session = known.session;
  const std::string here = at + "/kv_bytes/full";
  const bool is_kept = session.evicted_full == Evicted::kKeep;
  if (!is_kept) {
    const std::int64_t rows = std::min(exact.length, session.sink + session.window + exact.chunk);
    checks.expect_count(exact.full / exact.length * rows, bytes["full"], "bytes", here);
  } else if (!is_calibrated(session.kv_full) && !known.comparison.kv_pairs) {
    check_stored(exact.full, bytes["full"], session.kv_full, exact, here, checks);
  }
  const bool codes_grow = session.evicted_sliding != Evicted::kRestore;
  if (!codes_grow) return;
  // A token more takes a row of layers that keep all, or its code.
  const std::int64_t growing =
      (is_kept && !is_calibrated(session.kv_full) ? count(bytes["full"]) : 0) +
      count(bytes["codes"]);
  checks.expect_number(static_cast<double>(growing) / static_cast<double>(exact.length),
                       mode["kv_bytes_per_token"], "bytes", at + "/kv_bytes_per_token");
}

// One mode that the table has, beside the exact one.
void check_bytes_of_mode(const Report& mode,
                         const KvMode& known,
                         const ExactBytes& exact,
                         const std::string& at,
                         RuleChecks& checks) {
  check_full_bytes(mode, known, exact, at, checks);
  const SessionOptions& session = known.session;
  const Report& bytes = mode["kv_bytes"];
  if (session.evicted_sliding == Evicted::kKeep) {
    check_stored(exact.sliding, bytes["sliding"], session.kv_sliding, exact,
                 at + "/kv_bytes/sliding", checks);
  }
  const bool has_codes = is_calibrated(session.kv_full) ||
                         session.evicted_full == Evicted::kRestore ||
                         session.evicted_sliding == Evicted::kRestore;
  checks.expect(has_codes || bytes["codes"] == 0, "bytes", at + "/kv_bytes/codes",
                "expected none where nothing is restored or calibrated");
}

// A calibrated code of a bit more takes a bit more for each element, whatever it has beside.
void check_calibrated(const Report& modes,
                      const ExactBytes& exact,
                      const std::string& at,
                      RuleChecks& checks) {
  const std::int64_t elements = exact.full / kv_vector_bytes(exact.format, 1);
  const Report* first = nullptr;
  for (std::size_t i = 0; i < modes.size(); ++i) {
    const auto name = modes[i]["mode"].get<std::string>();
    // "k4v4" alone, of equal bits, and "k4v4-last".
    if (name.size() < 4 || name[0] != 'k' || name[2] != 'v' || name[1] != name[3]) continue;
    if (first == nullptr) first = &modes[i];
    const std::int64_t bits = name[1] - (*first)["mode"].get<std::string>()[1];
    checks.expect_count(count((*first)["kv_bytes"]["codes"]) + bits * elements / 8,
                        modes[i]["kv_bytes"]["codes"], "bytes",
                        fmt::format("{}/modes/{}/kv_bytes/codes", at, i));
  }
}

}  // namespace

void check_mode_bytes(const Report& report,
                      const Report& text,
                      const std::string& at,
                      RuleChecks& checks) {
  const Report& modes = text["modes"];
  const Report& bytes = modes[0]["kv_bytes"];
  const ExactBytes exact = {
      .full = count(bytes["full"]),
      .sliding = count(bytes["sliding"]),
      .length = count(text["length"]),
      .chunk = count(report["options"]["chunk"]),
      .format = report["compute"] == "f32" ? KvFormat::kF32 : KvFormat::kBf16,
  };
  if (modes[0]["mode"] != std::string(kExactMode) || exact.length == 0) return;
  checks.expect(exact.full % exact.length == 0, "bytes", at + "/modes/0/kv_bytes/full",
                fmt::format("expected {} rows of equal length, got {}", exact.length, exact.full));
  for (std::size_t i = 0; i < modes.size(); ++i) {
    const std::string here = fmt::format("{}/modes/{}", at, i);
    const auto name = modes[i]["mode"].get<std::string>();
    const auto known = std::ranges::find(kv_modes(), name, &KvMode::name);
    if (known != kv_modes().end()) check_bytes_of_mode(modes[i], *known, exact, here, checks);
    const double same = modes[i]["top1_agreement"].get<double>() *
                        static_cast<double>(count(modes[i]["positions"]));
    checks.expect(std::abs(same - std::round(same)) < 1e-6, "counts", here + "/top1_agreement",
                  fmt::format("expected a share of whole positions, got {} of them", same));
  }
  check_calibrated(modes, exact, at, checks);
}

}  // namespace kakeya::eval
