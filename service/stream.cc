#include "service/stream.h"

#include <utility>

#include "service/service.h"

namespace kakeya::service {

Stream::Stream(Service& service,
               Answer answer,
               AnswerPiece echo,
               std::shared_ptr<RequestRecord> record)
    : service_(&service),
      answer_(std::move(answer)),
      echo_(std::move(echo)),
      record_(std::move(record)) {}

AnswerEnd Stream::end() const {
  return generates() ? answer_.end() : AnswerEnd{.reason = FinishReason::kLength};
}

Outcome<void> Stream::submit(const AnswerRequest& wish,
                             Request request,
                             std::shared_ptr<Constraint> constraint,
                             const Wake& wake) {
  // An answer that is not streamed is taken as it comes, and kept until it is whole.
  const std::size_t most_unread = wish.stream
                                      ? service_->options().most_unread_tokens
                                      : static_cast<std::size_t>(request.generate.max_tokens);
  mailbox_ = std::make_shared<Mailbox>(most_unread, wake);
  request.generate.constraint = constraint.get();
  const auto id = service_->driver().submit(
      std::move(request), mailbox_,
      // Whoever has the request has this, and with it what it is bound to.
      [record = record_, constraint = std::move(constraint)](const RequestResult& result) {
        record->add_result(result);
      });
  if (!id) return tl::unexpected(refusal_of(id.error()));
  ticket_ = std::make_unique<Ticket>(service_->driver(), *id, mailbox_);
  return {};
}

void Stream::observe_mail() {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> since = now - last_mail_.value_or(record_->arrived);
  if (last_mail_) {
    service_->metrics().observe_gap(since.count());
  } else {
    service_->metrics().observe_first_token(since.count());
    record_->first_token();
  }
  last_mail_ = now;
}

Status Stream::take(AnswerPiece& piece) {
  if (finished_) return {};
  if (piece.empty()) piece.begin = characters_;
  const std::size_t before = piece.text.size();
  append(piece, std::exchange(echo_, {}));
  Status taken;
  if (generates()) {
    Mail mail = mailbox_->take();
    if (!mail.tokens.empty()) observe_mail();
    taken = answer_.add(std::move(mail), piece);
    if (answer_.finished()) ticket_.reset();  // a stop string may have ended it earlier
  }
  characters_ += characters_of(std::string_view(piece.text).substr(before));
  finished_ = !generates() || answer_.finished();
  return taken;
}

Outcome<std::vector<Stream>> open_streams(Service& service,
                                          const AnswerRequest& wish,
                                          const AnswerPlan& plan,
                                          const std::vector<Request>& prepared,
                                          const std::vector<AnswerPiece>& echoes,
                                          const std::shared_ptr<RequestRecord>& record,
                                          const Stream::Wake& wake) {
  std::vector<Stream> streams;
  for (std::size_t at = 0; at < prepared.size(); ++at) {
    for (int index = 0; index < wish.choices; ++index) {
      auto splitter = plan.split(prepared[at].prompt);
      if (!splitter) return tl::unexpected(refusal_of(splitter.error()));
      streams.push_back(Stream(service, Answer(std::move(*splitter)), echoes[at], record));
      // Else a prompt is run for the prefix cache alone.
      if (prepared[at].generate.max_tokens == 0 && wish.echo) continue;
      Request request = prepared[at];
      request.generate.sampling.seed += static_cast<std::uint64_t>(index);
      // Tickets end those before one that is refused.
      auto constraint = plan.constrain(request.prompt);
      const auto submitted =
          streams.back().submit(wish, std::move(request), std::move(constraint), wake);
      if (!submitted) return tl::unexpected(submitted.error());
    }
  }
  return streams;
}

Usage usage_of(const std::vector<Stream>& streams, int choices, std::int64_t prompt_tokens) {
  Usage usage = {.prompt_tokens = prompt_tokens};
  for (std::size_t i = 0; i < streams.size(); ++i) {
    usage.completion_tokens += streams[i].token_count();
    usage.reasoning_tokens += streams[i].thought_token_count();
    // The choices of a prompt share it: the first one to run it had the least to start from.
    const bool is_first = i % static_cast<std::size_t>(choices) == 0;
    if (is_first) usage.cached_tokens += streams[i].cached_tokens();
  }
  return usage;
}

}  // namespace kakeya::service
