// Progress of a fetched model on standard error, and Ctrl-C.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cli/hub/hub_watch.h"
#include "cli/hub/pull.h"
#include "cli/terminal.h"

namespace kakeya::cli {

// At a terminal a bar with amounts, speed and time left, elsewhere a line for each file. Ctrl-C
// ends the fetch, of which the next one takes up what is there.
class PullWatch final : public HubWatch {
 public:
  PullWatch() = default;

  bool stopped() override;
  void moves(const HubFile& file, std::uint64_t done) override;
  void ends(const HubFile& file, bool fetched) override;
  void says(std::string_view text) override;

 private:
  using Clock = std::chrono::steady_clock;

  InterruptGuard interrupt_;
  std::unique_ptr<ProgressLine> line_;  // of the file that is on its way
  std::string path_;
  Clock::time_point begun_;
  std::uint64_t first_ = 0;  // bytes that were here when it began
};

// The branch that a name means where no revision is given.
inline constexpr const char* kMainBranch = "main";

// Fetches a model as the environment's settings say, and shows how far it is. Errors: those of
// hub_settings() and pull_model().
Result<PulledModel> pull_shown(const std::string& name, const std::string& revision);

// "x.gguf [####......] 12.0 MiB of 40.0 MiB, 8.0 MiB/s, 4 s left"
std::string pull_progress(const HubFile& file,
                          std::uint64_t first,
                          std::uint64_t done,
                          double seconds);

}  // namespace kakeya::cli
