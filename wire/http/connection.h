// One client's connection: reads requests, answers them, one after the other, on a thread of its
// own. Everything that may wait does so in the connection's own loop, so that mail, a client that
// goes away and a server that stops are seen at once.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/tokenizer.h"
#include "service/answer.h"
#include "service/driver.h"
#include "service/metrics.h"
#include "service/refusal.h"
#include "wire/http/access.h"
#include "wire/http/client_stream.h"
#include "wire/http/serve_options.h"
#include "wire/http/server_log.h"
#include "wire/openai/completion_write.h"

namespace kakeya::server {

// The parts of the server that all connections share. They outlive the connections.
struct Service {
  Engine& engine;
  const Tokenizer& tokenizer;
  Driver& driver;
  Metrics& metrics;
  const ServeOptions& options;
  Access& access;
  ServerLog& log;
  const std::atomic<bool>& draining;     // no requests are taken any more
  std::atomic<std::int64_t>& answering;  // requests, by all connections
  std::mutex& text_work;                 // held while a text is worked on that no context bounds
  std::optional<ChannelMarkers> channel_markers = {};  // of the model
  std::int64_t started = 0;                            // Unix time
};

struct PageFile;

// The scheduler's result for a text that is embedded or scored.
struct TextResult {
  std::vector<float> embedding = {};
  std::vector<TokenLogprobs> scores = {};
};

// One answer that a request is given, and what became of it so far.
struct Choice;

class Connection {
 public:
  explicit Connection(const Service& service);

  // The loop of the connection's socket.
  boost::asio::io_context& context() { return io_; }

  // Serves the client until one of both has enough, or only tells who is `turned_away` that there
  // are too many. Throws nothing. On the connection's thread.
  void run(ClientStream::Socket socket, bool turned_away);

  // Closes the connection, at once if it waits for a request, else when the answer is over or has
  // not been taken for two seconds. From any thread.
  void stop();

  // Since when it has waited for a handshake or a request, in ticks of the steady clock; kBusy
  // while there is one, and behind make_room(). From any thread.
  std::int64_t idle_since() const { return idle_since_; }
  static constexpr std::int64_t kBusy = std::numeric_limits<std::int64_t>::max();

  // Idle from here on. Before run(), or on its thread.
  void begin_idle();

  // Closes the connection if it is idle by then; until that is known, it is leaving. From any
  // thread.
  void make_room();
  bool is_leaving() const { return leaving_; }

 private:
  using ErrorCode = boost::system::error_code;
  using HttpRequest = boost::beast::http::request<boost::beast::http::string_body>;
  using HttpParser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using HttpFields = boost::beast::http::request_header<>;
  using Headers = std::vector<std::pair<std::string, std::string>>;

  // "KIND-" and what no other request of this server has.
  std::string next_id(std::string_view kind) const;
  // Paths, what asks for them and who answers: connection_routes.cc.
  struct Route;
  static const Route* find_route(std::string_view path);
  // The log's name for a path: a client may write anything into one.
  static std::string_view known_route(std::string_view path);
  static std::string allowed_verbs(const Route* route);

  // Who asks, for turns with others: the key's name, else the address.
  const std::string& client() const {
    return record_->key_name.empty() ? peer_ : record_->key_name;
  }
  void end_idle();
  // The next ones return whether the connection goes on.
  bool shake_hands();
  bool exchange();
  bool read_and_answer();
  // Looks at a header, before anything more of a request is read. Without what it lets in,
  // keep_alive_ is false.
  bool admit(const HttpFields& fields);
  bool admit_host(const HttpFields& fields);
  bool admit_key(const HttpFields& fields, std::string_view path);
  // When the request has to be answered; false if the client wants something that is no time.
  bool set_deadline(const HttpFields& fields);
  // Reads the rest of a request, of which at most so many bytes are its body.
  ErrorCode read_body(HttpParser& parser, std::size_t most_bytes);
  bool route(const HttpRequest& request);
  bool serve_options(const Route* route, const HttpRequest& request);
  bool serve_page(const PageFile& page);
  bool serve_models(const HttpRequest& request);
  bool serve_model(const HttpRequest& request);
  bool serve_props(const HttpRequest& request);
  bool serve_tokenizer(const HttpRequest& request);
  bool serve_metrics(const HttpRequest& request);
  bool serve_health(const HttpRequest& request);
  bool chat(const HttpRequest& request);
  bool complete(const HttpRequest& request);
  bool embed(const HttpRequest& request);
  bool tokenize(const HttpRequest& request);
  bool detokenize(const HttpRequest& request);
  bool apply_template(const HttpRequest& request);
  bool answer(const Outcome<ServeRequest>& read);
  // Watched for a client that goes away meanwhile.
  bool generate(const ServeRequest& wish,
                const std::vector<Request>& prepared,
                const CompletionWriter& writer);
  // The first pieces of answers that repeat their prompts, one per prompt. Errors: as read_texts().
  Outcome<std::vector<AnswerPiece>> echo_prompts(const ServeRequest& wish,
                                                 const std::vector<Request>& prepared);
  // Hands the requests to the driver, once for each answer that each wants; the answers to a prompt
  // lie one behind the other. Errors: as Driver::submit(), and for stop strings that are none.
  Outcome<std::vector<Choice>> submit(const ServeRequest& wish,
                                      const std::vector<Request>& prepared,
                                      const std::vector<AnswerPiece>& echoes);
  Outcome<void> submit_choice(const ServeRequest& wish, Request request, Choice& choice);
  // The results of texts behind which nothing is generated, in order. Errors: as Driver::submit(),
  // and those of the first one that fails.
  Outcome<std::vector<TextResult>> read_texts(std::vector<Request> texts);
  // Adds to the log's record how many tokens the answers have and, if all are whole, why they
  // ended.
  void note_answers(const std::vector<Choice>& choices);
  bool whole_answers(std::vector<Choice>& choices,
                     const CompletionWriter& writer,
                     const ServeRequest& wish);
  bool stream_answers(std::vector<Choice>& choices,
                      const CompletionWriter& writer,
                      const ServeRequest& wish);
  // Takes the mail of a choice into `piece`, and tells the metrics when it came.
  Status add_mail(Choice& choice, AnswerPiece& piece);
  // Takes the mail of a choice and appends it to `events`, as events of a stream.
  Status add_events(Choice& choice, int index, const CompletionWriter& writer, std::string& events);
  bool reply_with(const Outcome<std::string>& json);
  bool refuse(const Refusal& refusal);
  bool deny(const Denial& denial);
  bool refuse_unreadable(ErrorCode failure);
  bool reply(unsigned status,
             std::string body,
             const Headers& headers = {},
             std::string_view content_type = "application/json");
  // Sets the fields that every answer has about the server and the connection.
  void set_common_fields(boost::beast::http::response_header<>& response) const;
  bool write_stream_header();
  bool write_piece(std::string_view text);
  bool end_stream();

  // Runs the loop until the operation that `start` begins with a handler has ended.
  template <typename Start>
  ErrorCode finish(const Start& start);
  // Waits until there is mail; false if the client has gone, or there is none for so long.
  bool wait_for_mail(std::optional<std::chrono::milliseconds> limit = {});
  // Waits for the mail of a stream, and sends a sign of life now and then.
  bool wait_with_pings();
  // Looks for a client that goes away while it waits for an answer.
  void watch();
  void unwatch();
  void look_again();
  // Looks whether the client is there, and whether it has ended its side of the connection.
  void look();
  // Writes a few bytes that say nothing to a client which has ended its side: one that only does
  // not send any more takes them, and the system of one that has closed the connection says so.
  void probe();
  // Lets the client read what was written before the connection is closed.
  void close_gently();

  const Service& service_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  boost::asio::steady_timer stop_timer_{io_};
  boost::asio::steady_timer look_timer_{io_};
  boost::asio::steady_timer ping_timer_{io_};
  std::unique_ptr<ClientStream> stream_;
  boost::beast::flat_buffer buffer_;  // what was read and not yet looked at; of a bounded size
  unsigned version_ = 11;             // of HTTP, of the present request
  bool is_head_ = false;              // the present request wants the header of an answer alone
  bool keep_alive_ = false;           // another request may follow the present one
  std::string origin_ = {};           // the page's that sent it, if it may read answers; or empty
  std::optional<std::chrono::steady_clock::time_point> deadline_ = {};  // the present request's
  bool idle_ = true;  // as idle_since_, on its own thread
  bool answering_ = false;
  bool stopping_ = false;
  bool has_mail_ = false;
  bool watching_ = false;                               // a handler will look for the client
  bool unwatching_ = false;                             // it is to be the last one
  bool streaming_ = false;                              // the header of a stream was written
  bool half_closed_ = false;                            // the client sends nothing more
  bool probed_ = false;                                 // by probe(), since then
  bool gone_ = false;                                   // the client
  std::chrono::steady_clock::time_point arrived_ = {};  // the present request
  std::atomic<std::int64_t> idle_since_ = 0;
  std::atomic<bool> leaving_ = false;
  std::string peer_;                       // the client's address
  std::shared_ptr<RequestRecord> record_;  // of the present request
};

template <typename Start>
Connection::ErrorCode Connection::finish(const Start& start) {
  std::optional<ErrorCode> outcome;
  start([&outcome](ErrorCode failure, std::size_t = 0) { outcome = failure; });
  while (!outcome) io_.run_one();
  return *outcome;
}

}  // namespace kakeya::server
