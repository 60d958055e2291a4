// The part of a connection for answers of the model: it asks the driver, and writes what comes of
// it.
#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "service/answer_request.h"
#include "service/ticket.h"
#include "wire/http/connection.h"
#include "wire/openai/text_routes.h"

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
  Answer answer;
  AnswerPiece whole = {};  // of an answer that is not streamed; of one that is, what it begins with
  bool said_hello = false;
  bool finished = false;        // nothing more comes
  std::int64_t characters = 0;  // of the text so far
  // Null where nothing is generated.
  std::shared_ptr<Mailbox> mailbox = {};
  std::unique_ptr<Ticket> ticket = {};
  std::optional<std::chrono::steady_clock::time_point> last_mail = {};
};

namespace {

// The first piece of an answer that repeats its prompt. Tokens that were put in front of a text are
// left out.
AnswerPiece echo_of(const Tokenizer& tokenizer,
                    const RawPrompt& prompt,
                    const std::vector<TokenId>& ids) {
  AnswerPiece piece;
  piece.text = prompt.ids.empty() ? prompt.text : tokenizer.decode(ids, false);
  if (!piece.text.empty()) piece.runs.push_back({.bytes = piece.text.size(), .drafted = false});
  const bool begun = prompt.ids.empty() && !ids.empty() && tokenizer.is_special(ids.front()) &&
                     !prompt.text.starts_with(tokenizer.decode({ids.data(), 1}, false));
  for (std::size_t i = begun ? 1 : 0; i < ids.size(); ++i) piece.tokens.push_back({.id = ids[i]});
  return piece;
}

// Adds the log-probabilities of all of the prompt's tokens but its first one.
void add_scores(std::vector<TokenLogprobs>& scores, AnswerPiece& piece) {
  const std::size_t count = std::min(scores.size(), piece.tokens.size());
  for (std::size_t i = 1; i <= count; ++i) {
    piece.tokens[piece.tokens.size() - i].logprobs = std::move(scores[scores.size() - i]);
  }
}

FinishReason reason_of(const Choice& choice) {
  return choice.mailbox == nullptr ? FinishReason::kLength : choice.answer.reason();
}

// How many tokens of the prompts need not be run. The choices of a prompt share it: the first one
// to run it had the least to start from.
std::int64_t cached_tokens(const std::vector<Choice>& choices, int choices_of_prompt) {
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < choices.size(); i += static_cast<std::size_t>(choices_of_prompt)) {
    if (choices[i].mailbox != nullptr) tokens += choices[i].mailbox->cached();
  }
  return tokens;
}

}  // namespace

bool Connection::answer(const Outcome<ServeRequest>& read) {
  if (!read) return refuse(read.error());
  const ServeRequest& wish = *read;
  const auto known = check_model(service_.options.model_name, wish.model);
  if (!known) return refuse(known.error());
  auto prepared = make_requests(service_.engine, wish, service_.options.draft_length);
  if (!prepared) return refuse(prepared.error());
  record_->id = next_id(wish.is_chat() ? "chatcmpl" : "cmpl");
  record_->is_answer = true;
  for (Request& request : *prepared) {
    request.deadline = deadline_;
    request.client = client();
    record_->prompt_tokens += std::ssize(request.prompt);
  }
  const CompletionWriter writer(service_.tokenizer, wish,
                                {.id = record_->id,
                                 .model = service_.options.model_name,
                                 .created = unix_time(),
                                 .prompt_tokens = record_->prompt_tokens});
  service_.access.charge(record_->key_name, std::ssize(*prepared) * std::int64_t{wish.choices} - 1);
  watch();
  const bool served = generate(wish, *prepared, writer);
  unwatch();
  gone_ = gone_ || !served;
  return served && !gone_;
}

bool Connection::generate(const ServeRequest& wish,
                          const std::vector<Request>& prepared,
                          const CompletionWriter& writer) {
  std::vector<AnswerPiece> echoes(prepared.size());
  if (wish.echo) {
    auto pieces = echo_prompts(wish, prepared);
    if (!pieces) return !gone_ && refuse(pieces.error());
    echoes = std::move(*pieces);
  }
  auto choices = submit(wish, prepared, echoes);
  if (!choices) return refuse(choices.error());
  const bool served =
      wish.stream ? stream_answers(*choices, writer, wish) : whole_answers(*choices, writer, wish);
  note_answers(*choices);
  record_->cached_tokens = cached_tokens(*choices, wish.choices);
  return served;
}

Outcome<std::vector<AnswerPiece>> Connection::echo_prompts(const ServeRequest& wish,
                                                           const std::vector<Request>& prepared) {
  std::vector<AnswerPiece> pieces;
  std::vector<Request> texts;
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    const Request& request = prepared[i];
    pieces.push_back(echo_of(service_.tokenizer, wish.prompts[i], request.prompt));
    // A first token has no log-probability.
    if (!wish.logprobs || request.prompt.size() < 2) continue;
    texts.push_back({.prompt = request.prompt,
                     .score = ScoreOptions{.first = 1, .top_logprobs = wish.top_logprobs},
                     .priority = request.priority,
                     .client = request.client,
                     .deadline = request.deadline});
  }
  if (texts.empty()) return pieces;
  auto read = read_texts(std::move(texts));
  if (!read) return tl::unexpected(std::move(read).error());
  auto next = read->begin();
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    if (prepared[i].prompt.size() >= 2) add_scores((next++)->scores, pieces[i]);
  }
  return pieces;
}

Outcome<std::vector<Choice>> Connection::submit(const ServeRequest& wish,
                                                const std::vector<Request>& prepared,
                                                const std::vector<AnswerPiece>& echoes) {
  has_mail_ = false;
  // A completion is the text as it is.
  const auto markers = wish.is_chat() ? service_.channel_markers : std::nullopt;
  std::vector<Choice> choices;
  for (std::size_t at = 0; at < prepared.size(); ++at) {
    for (int index = 0; index < wish.choices; ++index) {
      auto answer = Answer::create(service_.tokenizer, wish.stop_strings, markers);
      if (!answer) {
        Refusal refusal = refusal_of(answer.error());
        refusal.parameter = "stop";
        return tl::unexpected(std::move(refusal));
      }
      answer->begin_behind(prepared[at].prompt);
      choices.push_back({.answer = std::move(*answer), .whole = echoes[at]});
      if (prepared[at].generate.max_tokens == 0) continue;
      Request request = prepared[at];
      request.generate.sampling.seed += static_cast<std::uint64_t>(index);
      // Tickets end those before one that is refused.
      const auto submitted = submit_choice(wish, std::move(request), choices.back());
      if (!submitted) return tl::unexpected(submitted.error());
    }
  }
  return choices;
}

Outcome<void> Connection::submit_choice(const ServeRequest& wish, Request request, Choice& choice) {
  // An answer that is not streamed is taken as it comes, and kept until it is whole.
  const std::size_t most_unread = wish.stream
                                      ? service_.options.most_unread_tokens
                                      : static_cast<std::size_t>(request.generate.max_tokens);
  choice.mailbox = std::make_shared<Mailbox>(
      most_unread, [this] { asio::post(io_, [this] { has_mail_ = true; }); });
  const auto constraint = constraint_of(service_.engine, wish);
  request.generate.constraint = constraint.get();
  const auto id = service_.driver.submit(
      std::move(request), choice.mailbox,
      // Whoever has the request has this, and with it what it is bound to.
      [record = record_, constraint](const RequestResult& result) { record->add_result(result); });
  if (!id) return tl::unexpected(refusal_of(id.error()));
  choice.ticket = std::make_unique<Ticket>(service_.driver, *id, choice.mailbox);
  return {};
}

void Connection::note_answers(const std::vector<Choice>& choices) {
  bool all_stopped = true;
  bool all_finished = true;
  for (const Choice& choice : choices) {
    record_->generated += choice.answer.token_count();
    all_stopped = all_stopped && choice.answer.reason() == FinishReason::kStop;
    all_finished = all_finished && (choice.mailbox == nullptr || choice.answer.finished());
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

bool Connection::whole_answers(std::vector<Choice>& choices,
                               const CompletionWriter& writer,
                               const ServeRequest& wish) {
  const auto finished = [](const Choice& choice) {
    return choice.mailbox == nullptr || choice.answer.finished();
  };
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
    answers.push_back({std::move(choice.whole), reason_of(choice), choice.answer.token_count()});
  }
  return reply(200, writer.completion(answers, cached_tokens(choices, wish.choices)));
}

Status Connection::add_events(Choice& choice,
                              int index,
                              const CompletionWriter& writer,
                              std::string& events) {
  AnswerPiece piece = std::exchange(choice.whole, {});  // of its prompt
  Status added;
  if (choice.mailbox != nullptr) added = add_mail(choice, piece);
  if (!added) record_->fail(added.error().code());
  if (!std::exchange(choice.said_hello, true) && writer.is_chat()) {
    events += server_event(writer.first_chunk(index));
  }
  piece.begin = choice.characters;
  choice.characters += characters_of(piece.text);
  if (writer.says_anything(piece)) events += server_event(writer.chunk(index, piece));
  if (!added) return added;
  choice.finished = choice.mailbox == nullptr || choice.answer.finished();
  if (choice.finished) {
    events += server_event(writer.last_chunk(index, reason_of(choice)));
  }
  return {};
}

bool Connection::stream_answers(std::vector<Choice>& choices,
                                const CompletionWriter& writer,
                                const ServeRequest& wish) {
  // At once: clients and proxies give up on a server that says nothing for long.
  if (!write_stream_header()) return false;
  const auto unfinished = [](const Choice& choice) { return !choice.finished; };
  const auto waits = [](const Choice& choice) { return choice.mailbox != nullptr; };
  bool has_news = !std::ranges::all_of(choices, waits);  // a prompt that nothing follows
  while (std::ranges::any_of(choices, unfinished)) {
    if (!std::exchange(has_news, false) && !wait_with_pings()) return false;
    std::string events;
    for (int index = 0; index < static_cast<int>(choices.size()); ++index) {
      Choice& choice = choices[static_cast<std::size_t>(index)];
      if (choice.finished) continue;
      const Status added = add_events(choice, index, writer, events);
      if (added) continue;
      keep_alive_ = false;
      events += server_event(error_json(refusal_of(added.error())));
      return write_piece(events) && end_stream();
    }
    if (!events.empty() && !write_piece(events)) return false;
  }
  std::int64_t tokens = 0;
  for (const Choice& choice : choices) tokens += choice.answer.token_count();
  std::string rest;
  if (wish.include_usage) {
    rest = server_event(writer.usage_chunk(tokens, cached_tokens(choices, wish.choices)));
  }
  rest += kLastEvent;
  return write_piece(rest) && end_stream();
}

bool Connection::wait_with_pings() {
  for (;;) {
    const bool waited = wait_for_mail(service_.options.ping_interval);
    if (waited || gone_) return waited;
    if (!write_piece(": ping\n\n")) return false;
  }
}

}  // namespace kakeya::server
