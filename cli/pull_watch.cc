#include "cli/pull_watch.h"

#include <fmt/format.h>

#include "base/memory_budget.h"
#include "base/status.h"
#include "cli/output.h"
#include "formats/printable.h"

namespace kakeya::cli {
namespace {

constexpr std::size_t kLongestShown = 40;  // of a path, for a line of 80 to 120 columns

std::string shown_path(const std::string& path) {
  const std::string shown = printable(path);
  if (shown.size() <= kLongestShown) return shown;
  return "..." + shown.substr(shown.size() - kLongestShown + 3);
}

std::string shown_time(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

}  // namespace

std::string pull_progress(const HubFile& file,
                          std::uint64_t first,
                          std::uint64_t done,
                          double seconds) {
  constexpr std::uint64_t kWidth = 20;
  const std::uint64_t filled =
      file.bytes == 0
          ? kWidth
          : static_cast<std::uint64_t>(static_cast<double>(kWidth) * static_cast<double>(done) /
                                       static_cast<double>(file.bytes));
  std::string text =
      fmt::format("{} [{}{}] {} of {}", shown_path(file.path), std::string(filled, '#'),
                  std::string(kWidth - filled, '.'), format_bytes(done), format_bytes(file.bytes));
  if (done <= first || seconds <= 0.0) return text;
  const double speed = static_cast<double>(done - first) / seconds;
  return text + fmt::format(", {}/s, {} left", format_bytes(static_cast<std::uint64_t>(speed)),
                            shown_time(static_cast<double>(file.bytes - done) / speed));
}

bool PullWatch::stopped() {
  return interrupt_.interrupted();
}

void PullWatch::moves(const HubFile& file, std::uint64_t done) {
  if (line_ == nullptr || path_ != file.path) {
    path_ = file.path;
    begun_ = Clock::now();
    first_ = done;
    line_ = std::make_unique<ProgressLine>();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
  if (line_->is_due(seconds)) line_->show(seconds, pull_progress(file, first_, done, seconds));
}

void PullWatch::ends(const HubFile& file, bool fetched) {
  line_.reset();
  print_error("{}  {}{}\n", printable(file.path), format_bytes(file.bytes),
              fetched ? "" : ", was here");
}

Result<PulledModel> pull_shown(const std::string& name, const std::string& revision) {
  KAKEYA_ASSIGN_OR_RETURN(const HubSettings settings, hub_settings());
  PullWatch watch;
  auto pulled = pull_model(name, revision, settings, watch);
  if (pulled || pulled.error().code() != StatusCode::kCancelled) return pulled;
  return error(StatusCode::kCancelled, "stopped; the same command goes on where it ended");
}

void PullWatch::says(std::string_view text) {
  line_.reset();
  note(text);
}

}  // namespace kakeya::cli
