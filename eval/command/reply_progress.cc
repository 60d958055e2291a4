#include "eval/command/reply_progress.h"

#include <fmt/format.h>

namespace kakeya::cli {

void ReplyProgress::add(std::int64_t work, bool ran, const std::string& note) {
  ++done_replies_;
  done_work_ += work;
  if (ran) run_work_ += work;
  const double seconds = watch_.seconds();
  if (run_work_ == 0 || !line_.is_due(seconds)) return;
  const double left =
      seconds / static_cast<double>(run_work_) * static_cast<double>(work_ - done_work_);
  line_.show(seconds, fmt::format("{} of {} {}{}, about {:.0f} s left", done_replies_, replies_,
                                  what_, note, left));
}

}  // namespace kakeya::cli
