// What a connection does for an answer of the model: asks the driver, and writes what comes of it.
#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "server/connection.h"
#include "server/serve_request.h"
#include "server/text_routes.h"
#include "server/ticket.h"

namespace kakeya::server {
namespace {

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

namespace asio = boost::asio;

struct Choice {
  std::shared_ptr<Mailbox> mailbox;
  Answer answer;
  AnswerPiece whole = {};   // of an answer that is not streamed
  bool said_hello = false;  // of one that is
  std::unique_ptr<Ticket> ticket = {};
  std::optional<std::chrono::steady_clock::time_point> last_mail = {};
};

namespace {

// Of the prompt, which all choices share: the first one to run it may have had less to start from.
std::int64_t cached_tokens(const std::vector<Choice>& choices) {
  return choices.front().mailbox->cached();
}

}  // namespace

bool Connection::answer(const Outcome<ServeRequest>& wish) {
  if (!wish) return refuse(wish.error());
  const auto known = check_model(service_.options.model_name, wish->model);
  if (!known) return refuse(known.error());
  auto prepared = make_request(service_.engine, *wish, service_.options.draft_length);
  if (!prepared) return refuse(prepared.error());
  record_->id = next_id(wish->prompt ? "cmpl" : "chatcmpl");
  record_->is_answer = true;
  record_->prompt_tokens = std::ssize(prepared->prompt);
  auto choices = submit(*wish, *prepared);
  if (!choices) return refuse(choices.error());
  const CompletionWriter writer(service_.tokenizer, *wish, record_->id, unix_time(),
                                std::ssize(prepared->prompt));
  watch();
  const bool served = wish->stream ? stream_answers(*choices, writer, wish->include_usage)
                                   : whole_answers(*choices, writer);
  unwatch();
  gone_ = gone_ || !served;
  note_answers(*choices);
  return served && !gone_;
}

Outcome<std::vector<Choice>> Connection::submit(const ServeRequest& wish, const Request& prepared) {
  // What is not streamed is taken as it comes, and kept until it is whole.
  const std::size_t most_unread = wish.stream
                                      ? service_.options.most_unread_tokens
                                      : static_cast<std::size_t>(prepared.generate.max_tokens);
  has_mail_ = false;
  // A completion is the text as it is.
  const auto markers = wish.prompt ? std::nullopt : service_.channel_markers;
  std::vector<Choice> choices;
  for (int index = 0; index < wish.choices; ++index) {
    auto answer = Answer::create(service_.tokenizer, wish.stop_strings, markers);
    if (!answer) {
      Refusal refusal = refusal_of(answer.error());
      refusal.parameter = "stop";
      return tl::unexpected(std::move(refusal));
    }
    auto mailbox = std::make_shared<Mailbox>(
        most_unread, [this] { asio::post(io_, [this] { has_mail_ = true; }); });
    Request request = prepared;
    request.generate.sampling.seed += static_cast<std::uint64_t>(index);
    const auto id = service_.driver.submit(
        std::move(request), mailbox,
        [record = record_](const RequestResult& result) { record->add_result(result); });
    if (!id) return tl::unexpected(refusal_of(id.error()));  // tickets end those before it
    choices.push_back({.mailbox = mailbox, .answer = std::move(*answer)});
    choices.back().ticket = std::make_unique<Ticket>(service_.driver, *id, mailbox);
  }
  return choices;
}

void Connection::note_answers(const std::vector<Choice>& choices) {
  bool all_stopped = true;
  bool all_finished = true;
  for (const Choice& choice : choices) {
    record_->generated += choice.answer.token_count();
    all_stopped = all_stopped && choice.answer.reason() == FinishReason::kStop;
    all_finished = all_finished && choice.answer.finished();
  }
  if (all_finished && !gone_) record_->end = all_stopped ? "stop" : "length";
}

Status Connection::add_mail(Choice& choice, AnswerPiece& piece) {
  Mail mail = choice.mailbox->take();
  if (!mail.tokens.empty()) {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> since = now - choice.last_mail.value_or(arrived_);
    if (choice.last_mail) {
      service_.metrics.observe_gap(since.count());
    } else {
      service_.metrics.observe_first_token(since.count());
      record_->first_token();
    }
    choice.last_mail = now;
  }
  Status added = choice.answer.add(std::move(mail), piece);
  if (choice.answer.finished()) choice.ticket.reset();  // a stop string may have ended it earlier
  return added;
}

bool Connection::whole_answers(std::vector<Choice>& choices, const CompletionWriter& writer) {
  const auto finished = [](const Choice& choice) { return choice.answer.finished(); };
  while (!std::ranges::all_of(choices, finished)) {
    if (!wait_for_mail()) return false;
    for (Choice& choice : choices) {
      if (finished(choice)) continue;
      const Status added = add_mail(choice, choice.whole);
      if (!added) {
        record_->fail(added.error().code());
        return refuse(refusal_of(added.error()));
      }
    }
  }
  std::vector<WholeAnswer> answers;
  for (Choice& choice : choices) {
    answers.push_back({std::move(choice.whole), choice.answer.reason()});
  }
  return reply(200, writer.completion(answers, cached_tokens(choices)));
}

bool Connection::stream_answers(std::vector<Choice>& choices,
                                const CompletionWriter& writer,
                                bool include_usage) {
  // The first mail tells whether there is an answer at all, which the status line has to say.
  bool begun = false;
  std::int64_t tokens = 0;
  std::size_t unfinished = choices.size();
  while (unfinished > 0) {
    if (!wait_for_mail()) return false;
    std::string events;
    for (int index = 0; index < static_cast<int>(choices.size()); ++index) {
      Choice& choice = choices[static_cast<std::size_t>(index)];
      if (choice.answer.finished()) continue;
      AnswerPiece piece;
      const Status added = add_mail(choice, piece);
      if (!added) record_->fail(added.error().code());
      if (!added && !begun && events.empty()) return refuse(refusal_of(added.error()));
      if (!std::exchange(choice.said_hello, true) && writer.is_chat()) {
        events += server_event(writer.first_chunk(index));
      }
      if (writer.says_anything(piece)) events += server_event(writer.chunk(index, piece));
      if (!added) {
        keep_alive_ = false;
        events += server_event(error_json(refusal_of(added.error())));
        return (begun || write_stream_header()) && write_piece(events) && end_stream();
      }
      if (!choice.answer.finished()) continue;
      events += server_event(writer.last_chunk(index, choice.answer.reason()));
      tokens += choice.answer.token_count();
      --unfinished;
    }
    if (events.empty()) continue;
    if (!std::exchange(begun, true) && !write_stream_header()) return false;
    if (!write_piece(events)) return false;
  }
  std::string rest =
      include_usage ? server_event(writer.usage_chunk(tokens, cached_tokens(choices))) : "";
  rest += kLastEvent;
  return write_piece(rest) && end_stream();
}

}  // namespace kakeya::server
