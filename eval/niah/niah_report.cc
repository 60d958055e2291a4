#include "eval/niah/niah_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace kakeya::cli {
namespace {

constexpr int kCellWidth = 13;

// Fuller means more found.
const char* shade(double share) {
  constexpr std::array kShades = {"  ", "\u2591\u2591", "\u2592\u2592", "\u2593\u2593",
                                  "\u2588\u2588"};
  if (share <= 0.0) return kShades.front();
  if (share >= 1.0) return kShades.back();
  return kShades[1 + static_cast<std::size_t>(share * 2.999)];
}

const eval::NiahClaim* claim_of(const NiahReport& report,
                                const std::string& mode,
                                std::int64_t length) {
  const auto found = std::ranges::find_if(report.claims, [&](const eval::NiahClaim& claim) {
    return claim.mode == mode && claim.length == length;
  });
  return found == report.claims.end() ? nullptr : &*found;
}

// The rows that replies of a mode and length could not see, on average.
std::string mean_rows(const NiahReport& report, std::size_t mode, std::int64_t length) {
  std::int64_t evicted = 0;
  std::int64_t restored = 0;
  std::int64_t replies = 0;
  for (const eval::NiahSample& sample : report.samples) {
    if (sample.place.length != length || !sample.replies[mode].error.empty()) continue;
    evicted += sample.replies[mode].evicted_rows;
    restored += sample.replies[mode].restored_rows;
    ++replies;
  }
  if (replies == 0) return "-";
  return fmt::format("{} / {}", evicted / replies, restored / replies);
}

std::string line_of(const NiahReport& report, const std::string& title, auto&& text_of) {
  std::string line = fmt::format("{:>22}", title);
  for (const std::int64_t length : report.lengths) {
    line += fmt::format(" {:>{}}", text_of(length), kCellWidth);
  }
  return line + "\n";
}

std::string mode_block(const NiahReport& report, std::size_t mode) {
  const std::string& name = report.modes[mode];
  std::string text = name + "\n";
  text += line_of(report, "depth % \\ tokens",
                  [](std::int64_t length) { return fmt::format("{}", length); });
  for (const std::int64_t depth : report.depths) {
    text += line_of(report, fmt::format("{}", depth), [&](std::int64_t length) {
      const NiahCell cell = niah_cell(report, mode, length, depth);
      return fmt::format("{} of {} {}", cell.found, cell.samples, shade(cell.share()));
    });
  }
  const auto claimed = [&](auto&& say) {
    return [&, say](std::int64_t length) {
      const eval::NiahClaim* claim = claim_of(report, name, length);
      return claim != nullptr && claim->made ? say(*claim) : std::string("no claim");
    };
  };
  text += line_of(report, "recall", claimed([](const eval::NiahClaim& claim) {
                    return fmt::format("{:.3f}", claim.recall());
                  }));
  text +=
      line_of(report, "95 % interval", claimed([](const eval::NiahClaim& claim) {
                return fmt::format("{:.3f}-{:.3f}", claim.interval().low, claim.interval().high);
              }));
  if (name != eval::kServedMode) {
    text += line_of(report, "rows gone / restored",
                    [&](std::int64_t length) { return mean_rows(report, mode, length); });
  }
  return text + "\n";
}

}  // namespace

NiahCell niah_cell(const NiahReport& report,
                   std::size_t mode,
                   std::int64_t length,
                   std::int64_t depth) {
  NiahCell cell;
  for (const eval::NiahSample& sample : report.samples) {
    if (sample.place.length != length || sample.place.depth != depth) continue;
    const eval::NiahReply& reply = sample.replies[mode];
    ++cell.samples;
    if (reply.error.empty() && reply.found == sample.answers) ++cell.found;
  }
  return cell;
}

std::string format_niah(const NiahReport& report) {
  std::string text;
  for (std::size_t mode = 0; mode < report.modes.size(); ++mode) text += mode_block(report, mode);
  std::int64_t errors = 0;
  for (const eval::NiahClaim& claim : report.claims) errors += claim.errors;
  if (errors > 0) text += fmt::format("{} replies failed; the report has their errors\n", errors);
  return text;
}

}  // namespace kakeya::cli
