// One request over HTTP and what is said in reply: what handlers of routes see.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "service/model_pool.h"
#include "service/refusal.h"
#include "service/server_log.h"
#include "wire/http/access.h"
#include "wire/http/admission.h"
#include "wire/http/answer_writer.h"
#include "wire/http/client_stream.h"
#include "wire/http/client_watch.h"
#include "wire/http/http_options.h"
#include "wire/http/loop.h"
#include "wire/http/routes.h"

namespace kakeya::wire {

// The parts of a server that all connections share. They outlive the connections.
struct Site {
  service::ModelPool& models;
  const HttpOptions& options;
  Access& access;
  const RouteTable& routes;
};

// On the thread of its connection, whose parts must outlive it. Functions that write return whether
// the client has taken it.
class Exchange {
 public:
  using HttpRequest = boost::beast::http::request<boost::beast::http::string_body>;
  using Headers = std::vector<std::pair<std::string, std::string>>;

  // `peer`: who is connected. `stopping`: the connection ends after this exchange.
  Exchange(const Site& site,
           Loop& loop,
           ClientStream& stream,
           const std::string& peer,
           const bool& stopping);
  // Ends the record of the request.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Looks at a header, before anything more of a request is read. Returns whether it is let in; who
  // is not has been told, and the connection ends.
  bool admit(const HttpFields& fields, bool keep_alive);
  // Tells the client to go on (100 Continue), which it expects before an answer, asked for or not.
  bool say_continue();
  // Tells the client that what it sent is no request, too large or too slow. Returns false.
  bool refuse_unreadable(Loop::ErrorCode failure);
  // The whole request has come.
  void take(HttpRequest request);
  // True if another request may follow.
  bool keeps_alive() const { return keep_alive_ && !stopping_; }

  const Site& site() const { return site_; }
  service::ModelPool& models() const { return site_.models; }
  service::ServerState& server() const { return site_.models.server(); }
  // The model that the request is for, which choose_model() has found.
  service::Service& service() const { return model_.service(); }
  const HttpRequest& request() const { return request_; }
  std::string_view body() const { return request_.body(); }
  std::string_view path() const { return path_; }
  const Route* route() const { return found_.route; }  // null: there is none
  // The page's that sent it, if that may read answers; or empty.
  const std::string& origin() const { return origin_; }
  const Deadline& deadline() const { return deadline_; }
  // Who asks, as far as admit() has found out.
  const service::Client& client() const { return record_->client; }
  const std::shared_ptr<service::RequestRecord>& record() const { return record_; }

  // Finds the model that the request names, in `model` of its query or its body (the first one of
  // the server if neither does), and waits until it is loaded. Returns whether a handler may go on;
  // else the client has been told why not, or has gone.
  bool choose_model();

  // Whole responses.
  bool reply(unsigned status,
             std::string body,
             const Headers& headers = {},
             std::string_view content_type = "application/json");
  bool reply_with(const service::Outcome<std::string>& json);
  // Says why in the dialect of the route, with the status of the refusal or another one.
  bool refuse(const service::Refusal& refusal);
  bool refuse_with(unsigned status, const service::Refusal& refusal, const Headers& headers = {});
  // No request follows this one.
  void close_after() { keep_alive_ = false; }

  // A response that is a stream of events, or of lines: its header, events, its end.
  bool begin_events(const StreamForm& form);
  bool write(std::string_view events);
  bool end_events();

  // Waits for an answer, between watch().start() and watch().stop(). Whoever has something for this
  // exchange calls what wake() returns, from any thread while the connection lives.
  ClientWatch& watch() { return watch_; }
  std::function<void()> wake();
  // Waits until woken; false if the client has gone, or nobody woke it for so long.
  bool wait(std::optional<std::chrono::milliseconds> limit = {});
  // Waits as wait(), and sends a sign of life now and then, if the stream's form has one.
  bool wait_with_pings();

 private:
  // Writes a few bytes that say nothing to a client which has ended its side: one that only does
  // not send any more takes them, and the system of one that has closed the connection says so.
  void probe();
  bool deny(const Denial& denial);
  // Sets the fields that every response has about the server and the connection.
  void set_common_fields(boost::beast::http::response_header<>& response) const;

  // The name in the query or, where there are several models, in the body.
  std::string asked_model() const;

  const Site& site_;
  service::ModelPool::Use model_;  // while the request is answered
  Loop& loop_;
  ClientStream& stream_;
  const bool& stopping_;
  ClientWatch watch_;
  std::string_view ping_ = {};
  boost::asio::steady_timer ping_timer_;
  std::shared_ptr<service::RequestRecord> record_;
  RouteTable::Found found_;
  HttpRequest request_ = {};
  std::string path_ = {};
  std::string origin_ = {};
  Deadline deadline_ = {};
  unsigned version_ = 11;  // of HTTP
  bool is_head_ = false;   // the header of a response is wanted alone
  bool keep_alive_ = false;
  bool streaming_ = false;  // the header of a stream was written
};

}  // namespace kakeya::wire
