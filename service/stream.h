// Answers to a request as they come: HTTP and every other wire read the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kakeya/scheduler.h"
#include "kakeya/status.h"
#include "service/answer.h"
#include "service/answer_plan.h"
#include "service/answer_request.h"
#include "service/mailbox.h"
#include "service/refusal.h"
#include "service/server_log.h"
#include "service/ticket.h"

namespace kakeya::service {

class Service;

// One answer. One thread at a time; the request ends with its stream.
class Stream {
 public:
  // Called when there is something to take and was nothing before, on the thread that drives the
  // scheduler. It must neither wait nor throw.
  using Wake = std::function<void()>;

  // Appends to `piece` what has come since. Never waits. Errors: that of the request, if one ended
  // it; kCancelled for a reader that left more than ServiceOptions::most_unread_tokens.
  Status take(AnswerPiece& piece);

  // True if nothing more comes.
  bool finished() const { return finished_; }
  AnswerEnd end() const;
  std::int64_t token_count() const { return answer_.token_count(); }
  std::int64_t thought_token_count() const { return answer_.thought_token_count(); }
  // False if the answer is the prompt alone, so that nobody is woken for it.
  bool generates() const { return mailbox_ != nullptr; }
  // Tokens of the prompt that need not be run.
  std::int64_t cached_tokens() const { return mailbox_ == nullptr ? 0 : mailbox_->cached(); }

 private:
  friend Outcome<std::vector<Stream>> open_streams(Service& service,
                                                   const AnswerRequest& wish,
                                                   const AnswerPlan& plan,
                                                   const std::vector<Request>& prepared,
                                                   const std::vector<AnswerPiece>& echoes,
                                                   const std::shared_ptr<RequestRecord>& record,
                                                   const Wake& wake);

  Stream(Service& service, Answer answer, AnswerPiece echo, std::shared_ptr<RequestRecord> record);
  Outcome<void> submit(const AnswerRequest& wish,
                       Request request,
                       std::shared_ptr<Constraint> constraint,
                       const Wake& wake);
  void observe_mail();

  Service* service_;
  Answer answer_;
  AnswerPiece echo_;  // of the prompt, which comes first
  bool finished_ = false;
  std::int64_t characters_ = 0;  // of the text so far
  std::shared_ptr<RequestRecord> record_;
  // Null where nothing is generated.
  std::shared_ptr<Mailbox> mailbox_ = {};
  std::unique_ptr<Ticket> ticket_ = {};
  std::optional<std::chrono::steady_clock::time_point> last_mail_ = {};
};

// Hands requests to the driver, once for each answer that each wants; the answers to a prompt lie
// one behind the other. `echoes`: what the answers to each prompt begin with, maybe nothing.
// Errors: as Driver::submit().
Outcome<std::vector<Stream>> open_streams(Service& service,
                                          const AnswerRequest& wish,
                                          const AnswerPlan& plan,
                                          const std::vector<Request>& prepared,
                                          const std::vector<AnswerPiece>& echoes,
                                          const std::shared_ptr<RequestRecord>& record,
                                          const Stream::Wake& wake);

// The numbers of tokens of all answers to a request that has so many choices of each prompt.
Usage usage_of(const std::vector<Stream>& streams, int choices, std::int64_t prompt_tokens);

}  // namespace kakeya::service
