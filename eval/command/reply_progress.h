// How far an evaluation of many replies is, and how long the rest takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "cli/terminal.h"

namespace kakeya::cli {

class ReplyProgress {
 public:
  // Begins the progress of `replies` replies, which are `what`; `work` measures what all of them
  // take, in any unit.
  ReplyProgress(std::string_view what, std::int64_t replies, std::int64_t work)
      : what_(what), replies_(replies), work_(work) {}

  // A reply is there, which was so much of the work; `ran`: it was not taken over from a journal.
  // `note` comes behind the number of replies.
  void add(std::int64_t work, bool ran, const std::string& note = {});

 private:
  std::string what_;
  std::int64_t replies_;
  std::int64_t work_;
  std::int64_t done_replies_ = 0;
  std::int64_t done_work_ = 0;
  std::int64_t run_work_ = 0;
  Stopwatch watch_;
  ProgressLine line_;
};

}  // namespace kakeya::cli
