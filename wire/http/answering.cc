#include "wire/http/answering.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/random_id.h"
#include "service/echo.h"
#include "service/stream.h"

namespace kakeya::wire {
namespace {

using service::AnswerPiece;
using service::FinishReason;
using service::Stream;
using service::WholeAnswer;

// Adds to the log's record how many tokens the answers have and, if all are whole, why they ended.
void note_answers(Exchange& exchange, const std::vector<Stream>& streams) {
  service::RequestRecord& record = *exchange.record();
  bool all_stopped = true;
  bool all_finished = true;
  for (const Stream& stream : streams) {
    record.generated += stream.token_count();
    all_stopped = all_stopped && stream.end().reason != FinishReason::kLength;
    all_finished = all_finished && stream.finished();
  }
  if (all_finished && !exchange.watch().is_gone()) record.end = all_stopped ? "stop" : "length";
}

bool all_finished(const std::vector<Stream>& streams) {
  return std::ranges::all_of(streams, &Stream::finished);
}

// True if there is something to take though nobody was woken for it.
bool begins_with_news(const std::vector<Stream>& streams) {
  return !std::ranges::all_of(streams, &Stream::generates);
}

// The tokens of an answer, for the session that its client names.
void note_ids(const AnswerPiece& piece, std::vector<TokenId>& ids) {
  for (const service::GeneratedToken& token : piece.tokens) ids.push_back(token.id);
}

// True if the answer belongs to a session: several answers to a prompt are no session's.
bool is_of_session(const PreparedAnswer& prepared) {
  return !prepared.session.id.empty() && prepared.requests.size() == 1 &&
         prepared.wish.choices == 1;
}

// Refuses, while no answer has begun, what belongs to a session that cannot be read.
service::Outcome<void> check_session(Exchange& exchange, const PreparedAnswer& prepared) {
  if (!is_of_session(prepared)) return {};
  const auto tokens =
      exchange.service().sessions().tokens(exchange.client().name(), prepared.session.id);
  if (tokens || tokens.error().status == StatusCode::kNotFound) return {};
  return tl::unexpected(tokens.error());
}

// Keeps what was said in the session that the client names, or ends it. A session that cannot be
// kept is no reason to refuse an answer that is there: the answer says why (empty: it is kept).
std::string keep_session(Exchange& exchange,
                         const PreparedAnswer& prepared,
                         const std::vector<TokenId>& generated) {
  if (!is_of_session(prepared)) return {};
  const SessionFields& session = prepared.session;
  service::Sessions& sessions = exchange.service().sessions();
  std::vector<TokenId> ids = prepared.requests.front().prompt;
  ids.insert(ids.end(), generated.begin(), generated.end());
  auto kept =
      sessions.put(exchange.client().name(), {.id = session.id, .parent = session.parent}, ids);
  if (kept && session.is_final) {
    const auto ended = sessions.close(exchange.client().name(), session.id);
    if (!ended) kept = tl::unexpected(ended.error());
  }
  if (kept) return {};
  exchange.server().log().add(service::LogLevel::kWarn, "a session was not kept",
                              {{"id", exchange.record()->id}, {"why", kept.error().message}});
  return kept.error().message;
}

bool write_whole(Exchange& exchange,
                 std::vector<Stream>& streams,
                 const PreparedAnswer& prepared,
                 AnswerWriter& writer) {
  std::vector<WholeAnswer> answers(streams.size());
  bool has_news = begins_with_news(streams);
  while (!all_finished(streams)) {
    if (!std::exchange(has_news, false) && !exchange.wait()) return false;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const Status taken = streams[i].take(answers[i].piece);
      if (taken) continue;
      exchange.record()->fail(taken.error().code());
      return exchange.refuse(service::refusal_of(taken.error()));
    }
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    answers[i].end = streams[i].end();
    answers[i].generated = streams[i].token_count();
  }
  std::vector<TokenId> ids;
  note_ids(answers.front().piece, ids);
  answers.front().end.session_not_kept = keep_session(exchange, prepared, ids);
  const service::Usage usage =
      service::usage_of(streams, prepared.wish.choices, prepared.prompt_tokens);
  return exchange.reply(200, writer.whole(answers, usage));
}

// An answer whose events are written.
struct WrittenStream {
  Stream& stream;
  int index = 0;
  bool begun = false;
  std::vector<TokenId> ids = {};
};

// Appends the events of what has come of an answer, whose session has it before its client reads
// the end. Errors: as Stream::take().
Status add_events(Exchange& exchange,
                  const PreparedAnswer& prepared,
                  WrittenStream& written,
                  AnswerWriter& writer,
                  std::string& events) {
  AnswerPiece piece;
  const Status taken = written.stream.take(piece);
  note_ids(piece, written.ids);
  if (!std::exchange(written.begun, true)) events += writer.begin(written.index);
  events += writer.piece(written.index, piece);
  if (!taken) return taken;
  if (!written.stream.finished()) return {};
  service::AnswerEnd end = written.stream.end();
  end.session_not_kept = keep_session(exchange, prepared, written.ids);
  events += writer.end(written.index, end);
  return {};
}

bool write_events(Exchange& exchange,
                  std::vector<Stream>& streams,
                  const PreparedAnswer& prepared,
                  AnswerWriter& writer) {
  // At once: clients and proxies give up on a server that says nothing for long.
  if (!exchange.begin_events(writer.stream_form())) return false;
  std::vector<WrittenStream> written;
  for (Stream& stream : streams) {
    written.push_back({.stream = stream, .index = static_cast<int>(written.size())});
  }
  bool has_news = begins_with_news(streams);
  while (!all_finished(streams)) {
    if (!std::exchange(has_news, false) && !exchange.wait_with_pings()) return false;
    std::string events;
    for (WrittenStream& one : written) {
      if (one.stream.finished()) continue;
      const Status added = add_events(exchange, prepared, one, writer, events);
      if (added) continue;
      exchange.record()->fail(added.error().code());
      exchange.close_after();
      events += writer.error(service::refusal_of(added.error()));
      return exchange.write(events) && exchange.end_events();
    }
    if (!events.empty() && !exchange.write(events)) return false;
  }
  const service::Usage usage =
      service::usage_of(streams, prepared.wish.choices, prepared.prompt_tokens);
  return exchange.write(writer.done(usage)) && exchange.end_events();
}

// The first pieces of answers that repeat their prompts, one a prompt; empty ones if they do not.
service::Outcome<std::vector<AnswerPiece>> echo_prompts(Exchange& exchange,
                                                        const PreparedAnswer& prepared) {
  if (!prepared.wish.echo) return std::vector<AnswerPiece>(prepared.requests.size());
  std::vector<AnswerPiece> pieces =
      service::echoes_of(exchange.service().tokenizer(), prepared.wish, prepared.requests);
  std::vector<Request> texts = service::score_requests(prepared.wish, prepared.requests);
  if (texts.empty()) return pieces;
  auto scored = run_texts(exchange, std::move(texts));
  if (!scored) return tl::unexpected(std::move(scored).error());
  service::add_scores(*scored, prepared.requests, pieces);
  return pieces;
}

// Refuses what is more urgent than the client may ask for.
service::Outcome<void> check_priority(const service::Client& client, int priority) {
  if (!client.most_urgent || priority >= *client.most_urgent) return {};
  return tl::unexpected(service::Refusal{
      .message = fmt::format("priority: expected at least {}, as the key '{}' has it, got {}",
                             *client.most_urgent, client.key, priority),
      .parameter = "priority"});
}

bool answer_watched(Exchange& exchange, const PreparedAnswer& prepared, AnswerWriter& writer) {
  const auto echoes = echo_prompts(exchange, prepared);
  if (!echoes) return !exchange.watch().is_gone() && exchange.refuse(echoes.error());
  auto streams =
      service::open_streams(exchange.service(), prepared.wish, prepared.plan, prepared.requests,
                            *echoes, exchange.record(), exchange.wake());
  if (!streams) return exchange.refuse(streams.error());
  const bool written = prepared.wish.stream ? write_events(exchange, *streams, prepared, writer)
                                            : write_whole(exchange, *streams, prepared, writer);
  note_answers(exchange, *streams);
  exchange.record()->cached_tokens =
      service::usage_of(*streams, prepared.wish.choices, 0).cached_tokens;
  return written;
}

service::Outcome<service::AnswerPlan> plan_answer(Exchange& exchange,
                                                  const service::AnswerRequest& wish) {
  auto plan = exchange.service().planner().plan(
      service::answer_options(wish),
      {.client = exchange.client().name(), .deadline = exchange.deadline()});
  // A client asks in vain for what this model cannot be held to.
  if (!plan && plan.error().status == StatusCode::kUnimplemented) {
    plan.error().status = StatusCode::kInvalidArgument;
  }
  if (plan) exchange.record()->not_enforced = fmt::format("{}", fmt::join(plan->notes(), "; "));
  return plan;
}

}  // namespace

service::Outcome<PreparedAnswer> prepare(Exchange& exchange,
                                         const service::AnswerRequest& wish,
                                         std::string_view id_prefix) {
  service::Service& service = exchange.service();
  const auto known = service::check_model(service.options(), wish.model);
  if (!known) return tl::unexpected(known.error());
  const auto allowed = check_priority(exchange.client(), wish.priority);
  if (!allowed) return tl::unexpected(allowed.error());
  auto session = read_session_fields(exchange.request());
  if (!session) return tl::unexpected(std::move(session).error());
  auto plan = plan_answer(exchange, wish);
  if (!plan) return tl::unexpected(std::move(plan).error());
  auto requests = service::make_requests(service.engine(), wish, service.options().draft_length);
  if (!requests) return tl::unexpected(std::move(requests).error());
  PreparedAnswer prepared = {.wish = wish,
                             .plan = std::move(*plan),
                             .requests = std::move(*requests),
                             .session = std::move(*session)};
  for (Request& request : prepared.requests) {
    request.deadline = exchange.deadline();
    request.client = exchange.client().name();
    request.session = service.engine().session_options();
    request.session->cache_scope = service.cache_scopes().of(request.client, wish.cache_salt);
    prepared.prompt_tokens += std::ssize(request.prompt);
  }
  const auto keeps = check_session(exchange, prepared);
  if (!keeps) return tl::unexpected(keeps.error());
  prepared.id = random_id(id_prefix);
  service::RequestRecord& record = *exchange.record();
  record.id = prepared.id;
  record.is_answer = true;
  record.prompt_tokens = prepared.prompt_tokens;
  return prepared;
}

service::Outcome<std::int64_t> count_prompt(Exchange& exchange,
                                            const service::AnswerRequest& wish) {
  const service::Service& service = exchange.service();
  const auto known = service::check_model(service.options(), wish.model);
  if (!known) return tl::unexpected(known.error());
  const auto requests = service::make_requests(service.engine(), wish, 0);
  if (!requests) return tl::unexpected(requests.error());
  return std::ssize(requests->front().prompt);
}

bool answer(Exchange& exchange, const PreparedAnswer& prepared, AnswerWriter& writer) {
  // The request itself took a place by now.
  const std::int64_t answers = std::ssize(prepared.requests) * std::int64_t{prepared.wish.choices};
  exchange.site().access.charge(exchange.client().key, answers - 1);
  exchange.watch().start();
  const bool served = answer_watched(exchange, prepared, writer);
  exchange.watch().stop();
  if (!served) exchange.watch().note_gone();
  return !exchange.watch().is_gone();
}

service::Outcome<std::vector<service::TextResult>> run_texts(Exchange& exchange,
                                                             std::vector<Request> texts) {
  service::TextRuns runs(exchange.service().driver(), std::move(texts), exchange.wake());
  for (;;) {
    const auto all_ended = runs.advance();
    if (!all_ended) return tl::unexpected(all_ended.error());
    if (*all_ended) return std::move(runs.results());
    if (!exchange.wait()) {
      return tl::unexpected(
          service::Refusal{.status = StatusCode::kCancelled, .message = "the client has gone"});
    }
  }
}

bool embed(Exchange& exchange,
           const service::EmbeddingRequest& wish,
           const std::function<std::string(const Embedded&)>& write) {
  service::Service& service = exchange.service();
  const auto known = service::check_model(service.options(), wish.model);
  if (!known) return exchange.refuse(known.error());
  const auto allowed = check_priority(exchange.client(), wish.priority);
  if (!allowed) return exchange.refuse(allowed.error());
  auto texts = service::encode_texts(service.engine(), wish);
  if (!texts) return exchange.refuse(texts.error());
  exchange.record()->prompt_tokens = texts->tokens;
  std::vector<Request> requests;
  for (std::vector<TokenId>& ids : texts->ids) {
    requests.push_back({.prompt = std::move(ids),
                        .embedding = wish.options,
                        .priority = -wish.priority,
                        .client = exchange.client().name(),
                        .deadline = exchange.deadline()});
  }
  // The request itself took a place by now.
  exchange.site().access.charge(exchange.client().key, std::ssize(requests) - 1);
  exchange.watch().start();
  auto results = run_texts(exchange, std::move(requests));
  exchange.watch().stop();
  if (exchange.watch().is_gone()) return false;
  if (!results) return exchange.refuse(results.error());
  return exchange.reply(200, write({.tokens = texts->tokens, .results = std::move(*results)}));
}

}  // namespace kakeya::wire
