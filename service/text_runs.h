// Texts behind which nothing is generated, which are embedded or scored: each is a request of the
// scheduler's, some at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "kakeya/logprobs.h"
#include "kakeya/scheduler.h"
#include "service/driver.h"
#include "service/refusal.h"
#include "service/ticket.h"

namespace kakeya::service {

// The scheduler's result for one text.
struct TextResult {
  std::vector<float> embedding = {};
  std::vector<TokenLogprobs> scores = {};
};

// One thread at a time. The driver must outlive it; texts that have not ended end with it.
class TextRuns {
 public:
  // `wake`: as Stream::Wake.
  TextRuns(Driver& driver, std::vector<Request> texts, std::function<void()> wake);
  ~TextRuns();

  // Takes what has come, and submits the next texts. Never waits. Returns whether all have ended.
  // Errors: as Driver::submit(), and those of the first text that fails.
  Outcome<bool> advance();

  // The results in order, once all have ended.
  std::vector<TextResult>& results() { return results_; }

 private:
  struct Running;
  Outcome<void> take();
  Outcome<void> submit();

  Driver& driver_;
  std::vector<Request> texts_;
  const std::function<void()> wake_;
  std::vector<TextResult> results_;
  std::vector<Running> running_;
  std::size_t next_ = 0;
};

}  // namespace kakeya::service
