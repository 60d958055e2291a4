// What a connection does for embeddings: each text is a request of the driver's, some at a time.
#include <boost/asio/post.hpp>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "server/connection.h"
#include "server/text_routes.h"
#include "server/ticket.h"

namespace kakeya::server {

namespace asio = boost::asio;

namespace {

// Most texts of one client that have or want a place in the scheduler.
constexpr std::size_t kMostAtOnce = 8;

// A text that the driver has.
struct RunningText {
  std::size_t index = 0;
  std::shared_ptr<Mailbox> mailbox = {};
  std::shared_ptr<std::vector<float>> vector = {};  // there when the mailbox has the end
  std::unique_ptr<Ticket> ticket = {};
};

}  // namespace

bool Connection::embed(const HttpRequest& request) {
  const auto wish = read_embeddings(service_.engine, service_.options.model_name, request.body());
  if (!wish) return refuse(wish.error());
  record_->prompt_tokens = wish->tokens;
  watch();
  const auto vectors = embed_texts(*wish);
  unwatch();
  if (gone_) return false;
  if (!vectors) return refuse(vectors.error());
  return reply(200, embeddings_json(*wish, service_.options.model_name, *vectors));
}

Outcome<std::vector<std::vector<float>>> Connection::embed_texts(const EmbeddingWish& wish) {
  std::vector<std::vector<float>> vectors(wish.texts.size());
  std::vector<RunningText> running;
  std::size_t next = 0;
  has_mail_ = false;
  while (next < vectors.size() || !running.empty()) {
    while (next < vectors.size() && running.size() < kMostAtOnce) {
      RunningText text = {.index = next, .vector = std::make_shared<std::vector<float>>()};
      text.mailbox =
          std::make_shared<Mailbox>(1, [this] { asio::post(io_, [this] { has_mail_ = true; }); });
      Request request = {.prompt = wish.texts[next], .embedding = wish.options};
      const auto id = service_.driver.submit(
          std::move(request), text.mailbox,
          [vector = text.vector](const RequestResult& result) { *vector = result.embedding; });
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
      vectors[text.index] = std::move(*text.vector);
      text.ticket.reset();
    }
    std::erase_if(running, [](const RunningText& text) { return text.ticket == nullptr; });
  }
  return vectors;
}

}  // namespace kakeya::server
