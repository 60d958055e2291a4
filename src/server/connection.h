// One client's connection: reads requests, answers them, one after the other, on a thread of its
// own. Everything that may wait does so in the connection's own loop, so that mail, a client that
// goes away and a server that stops are seen at once.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/tokenizer.h"
#include "server/access.h"
#include "server/answer.h"
#include "server/client_stream.h"
#include "server/driver.h"
#include "server/metrics.h"
#include "server/openai_write.h"
#include "server/serve_options.h"
#include "server/server_log.h"
#include "server/status_map.h"

namespace kakeya::server {

// What all connections share; it outlives them.
struct Service {
  Engine& engine;
  const Tokenizer& tokenizer;
  Driver& driver;
  Metrics& metrics;
  const ServeOptions& options;
  Access& access;
  ServerLog& log;
  std::optional<ChannelMarkers> channel_markers = {};  // of the model
  std::int64_t started = 0;                            // Unix time
};

struct PageFile;

struct EmbeddingWish;

// One answer that a request is given, and what became of it so far.
struct Choice;

class Connection {
 public:
  explicit Connection(const Service& service);

  // Its socket lives there.
  boost::asio::io_context& context() { return io_; }

  // Serves the client until one of both has enough, or only tells who is `turned_away` that there
  // are too many. Throws nothing. On the connection's thread.
  void run(ClientStream::Socket socket, bool turned_away);

  // From any thread: closes it, at once if it waits for a request, else when the answer is over or
  // has not been taken for two seconds.
  void stop();

 private:
  using ErrorCode = boost::system::error_code;
  using HttpRequest = boost::beast::http::request<boost::beast::http::string_body>;
  using HttpFields = boost::beast::http::request_header<>;
  using Headers = std::vector<std::pair<std::string, std::string>>;

  // "KIND-" and what no other request of this server has.
  std::string next_id(std::string_view kind) const;
  // The next ones return whether the connection goes on.
  bool shake_hands();
  bool exchange();
  bool read_and_answer();
  // Looks at a header, before anything more of a request is read.
  bool admit(const HttpFields& fields);
  bool route(const HttpRequest& request);
  bool serve_get(std::string_view path);
  bool serve_health();
  bool serve_page(const PageFile& page);
  bool serve_post(std::string_view path, const HttpRequest& request);
  bool answer(const Outcome<ServeRequest>& wish);
  // Hands the request to the driver, once for each answer it wants. Errors: as Driver::submit().
  Outcome<std::vector<Choice>> submit(const ServeRequest& wish, const Request& prepared);
  bool embed(std::string_view body);
  // Their vectors, in order. Errors: as Driver::submit(), and those of the first one that fails.
  Outcome<std::vector<std::vector<float>>> embed_texts(const EmbeddingWish& wish);
  // What the log says of answers that were given, whole or not.
  void note_answers(const std::vector<Choice>& choices);
  bool whole_answers(std::vector<Choice>& choices, const CompletionWriter& writer);
  bool stream_answers(std::vector<Choice>& choices,
                      const CompletionWriter& writer,
                      bool include_usage);
  // What came for a choice; tells the metrics when.
  Status add_mail(Choice& choice, AnswerPiece& piece);
  bool reply_with(const Outcome<std::string>& json);
  bool refuse(const Refusal& refusal);
  bool deny(const Denial& denial);
  bool refuse_unreadable(ErrorCode failure);
  bool reply(unsigned status,
             std::string body,
             const Headers& headers = {},
             std::string_view content_type = "application/json");
  bool write_stream_header();
  bool write_piece(std::string_view text);
  bool end_stream();

  // Runs the loop until the operation that `start` begins with a handler has ended.
  template <typename Start>
  ErrorCode finish(const Start& start);
  // Until there is mail; false if the client has gone.
  bool wait_for_mail();
  // Looks for a client that goes away while it waits for an answer.
  void watch();
  void unwatch();
  // Whether the client's side of the connection is open.
  bool is_open();
  void look_again();
  // Lets the client read what was written before the connection is closed.
  void close_gently();

  const Service& service_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  boost::asio::steady_timer stop_timer_{io_};
  boost::asio::steady_timer look_timer_{io_};
  std::unique_ptr<ClientStream> stream_;
  boost::beast::flat_buffer buffer_;
  unsigned version_ = 11;    // of HTTP, of the present request
  bool keep_alive_ = false;  // as the present request wants it
  bool answering_ = false;
  bool stopping_ = false;
  bool has_mail_ = false;
  bool watching_ = false;
  bool gone_ = false;                                   // the client
  std::chrono::steady_clock::time_point arrived_ = {};  // the present request
  std::string peer_;                                    // the client's address
  std::shared_ptr<RequestRecord> record_;               // of the present request
};

template <typename Start>
Connection::ErrorCode Connection::finish(const Start& start) {
  std::optional<ErrorCode> outcome;
  start([&outcome](ErrorCode failure, std::size_t = 0) { outcome = failure; });
  while (!outcome) io_.run_one();
  return *outcome;
}

}  // namespace kakeya::server
