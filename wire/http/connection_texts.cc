// The part of a connection for texts behind which nothing is generated, which are embedded or
// scored: each is a request of the driver's, some at a time.
#include <boost/asio/post.hpp>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "service/ticket.h"
#include "wire/http/connection.h"
#include "wire/openai/text_routes.h"

namespace kakeya::server {

namespace asio = boost::asio;

namespace {

// The most texts of one client that have or want a place in the scheduler.
constexpr std::size_t kMostAtOnce = 8;

// A text that the driver has.
struct RunningText {
  std::size_t index = 0;
  std::shared_ptr<Mailbox> mailbox = {};
  std::shared_ptr<TextResult> result = {};  // there when the mailbox has the end
  std::unique_ptr<Ticket> ticket = {};
};

}  // namespace

bool Connection::embed(const HttpRequest& request) {
  const auto wish = read_embeddings(service_.engine, service_.options.model_name, request.body());
  if (!wish) return refuse(wish.error());
  record_->prompt_tokens = wish->tokens;
  std::vector<Request> texts;
  for (const std::vector<TokenId>& ids : wish->texts) {
    texts.push_back({.prompt = ids,
                     .embedding = wish->options,
                     .priority = -wish->priority,
                     .client = client(),
                     .deadline = deadline_});
  }
  service_.access.charge(record_->key_name, std::ssize(texts) - 1);
  watch();
  auto results = read_texts(std::move(texts));
  unwatch();
  if (gone_) return false;
  if (!results) return refuse(results.error());
  std::vector<std::vector<float>> vectors;
  for (TextResult& result : *results) vectors.push_back(std::move(result.embedding));
  return reply(200, embeddings_json(*wish, service_.options.model_name, vectors));
}

Outcome<std::vector<TextResult>> Connection::read_texts(std::vector<Request> texts) {
  std::vector<TextResult> results(texts.size());
  std::vector<RunningText> running;
  std::size_t next = 0;
  has_mail_ = false;
  while (next < texts.size() || !running.empty()) {
    while (next < texts.size() && running.size() < kMostAtOnce) {
      RunningText text = {.index = next, .result = std::make_shared<TextResult>()};
      text.mailbox =
          std::make_shared<Mailbox>(1, [this] { asio::post(io_, [this] { has_mail_ = true; }); });
      const auto id = service_.driver.submit(texts[next], text.mailbox,
                                             [result = text.result](const RequestResult& of) {
                                               result->embedding = of.embedding;
                                               result->scores = of.scores;
                                             });
      // A full queue may have room when one of these has ended.
      const bool full = !id && id.error().code() == StatusCode::kResourceExhausted;
      if (full && !running.empty()) break;
      if (!id) return tl::unexpected(refusal_of(id.error()));
      text.ticket = std::make_unique<Ticket>(service_.driver, *id, text.mailbox);
      running.push_back(std::move(text));
      ++next;
    }
    if (!wait_for_mail()) {
      return tl::unexpected(
          Refusal{.status = StatusCode::kCancelled, .message = "the client has gone"});
    }
    for (RunningText& text : running) {
      const Mail mail = text.mailbox->take();
      if (!mail.end) continue;
      if (!mail.end->has_value()) return tl::unexpected(refusal_of(mail.end->error()));
      results[text.index] = std::move(*text.result);
      text.ticket.reset();
    }
    std::erase_if(running, [](const RunningText& text) { return text.ticket == nullptr; });
  }
  return results;
}

}  // namespace kakeya::server
