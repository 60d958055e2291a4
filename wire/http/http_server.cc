#include "wire/http/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/status.h"
#include "wire/http/connection.h"
#include "wire/http/listener.h"

namespace kakeya::wire {
namespace {

namespace asio = boost::asio;
using Socket = ClientStream::Socket;
using ErrorCode = boost::system::error_code;

// The most clients that are turned away at a time with TLS, beside HttpOptions::most_connections:
// each takes a handshake, and a thread for it. Yet others are closed without a word.
constexpr std::size_t kMostTurnedAway = 16;

// Connections that were told to make room and have not ended yet: beyond, newcomers come slower.
constexpr std::size_t kMostLeaving = 16;

// Turns a client away in one write that never waits: a socket's buffer is empty and holds as much.
void turn_away(Socket& socket, ErrorBody error_body) {
  const std::string body =
      error_body({.status = StatusCode::kUnavailable, .message = "too many connections"});
  const std::string text = fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
      "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
      body.size(), body);
  ErrorCode ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(text), ignored);
  socket.shutdown(Socket::shutdown_send, ignored);
}

}  // namespace

struct HttpServer::State {
  // A connection and its thread.
  struct Slot {
    explicit Slot(const Site& site) : connection(site) {}

    Connection connection;
    std::atomic<bool> done = false;
    std::thread thread = {};
  };

  State(std::unique_ptr<service::ModelPool> only,
        service::ModelPool& models,
        HttpOptions chosen,
        std::shared_ptr<Access> who,
        std::vector<Dialect> dialects)
      : own_pool(std::move(only)),
        options(std::move(chosen)),
        access(std::move(who)),
        routes(std::move(dialects)),
        site{models, options, *access, routes} {}

  void accept();
  // When there is no descriptor or no memory for a connection now: in a moment there may be.
  void accept_later(const std::string& reason);
  // Closes the connection that has been idle longest; false if there is none.
  bool make_room();
  void welcome(Socket socket);
  void remove_finished();

  service::ServerLog& log() { return site.models.server().log(); }

  const std::unique_ptr<service::ModelPool> own_pool;  // of one model; null: somebody else's
  const HttpOptions options;
  const std::shared_ptr<Access> access;
  const RouteTable routes;
  const Site site;
  // The slots are used by the thread that accepts, and once that has ended, by the one that stops
  // the server. Accepted sockets belong to a slot's loop, which must outlive them: so the slots go
  // last.
  std::list<std::unique_ptr<Slot>> slots;
  std::unique_ptr<Slot> next;  // whose socket comes next
  asio::io_context io{1};
  Listener listener{io};
  asio::steady_timer retry{io};
  bool starved = false;  // retry waits, and the log has said so
  std::mutex stopping;
  std::thread thread;
};

void HttpServer::State::accept() {
  try {
    remove_finished();
    if (!next) next = std::make_unique<Slot>(site);
    listener.acceptor().async_accept(next->connection.context(),
                                     [this](ErrorCode failure, Socket socket) {
                                       if (failure == asio::error::operation_aborted) return;
                                       if (failure) return accept_later(failure.message());
                                       welcome(std::move(socket));
                                       accept();
                                     });
    starved = false;
  } catch (const std::exception& failure) {
    accept_later(failure.what());
  }
}

void HttpServer::State::accept_later(const std::string& reason) {
  if (!std::exchange(starved, true)) {
    log().add(service::LogLevel::kWarn, "connections wait", {{"reason", reason}});
  }
  retry.expires_after(std::chrono::milliseconds(50));
  retry.async_wait([this](ErrorCode aborted) {
    if (!aborted) accept();
  });
}

bool HttpServer::State::make_room() {
  const auto since = [](const auto& slot) { return slot->connection.idle_since(); };
  const auto longest = std::ranges::min_element(slots, {}, since);
  if (longest == slots.end() || since(*longest) == Connection::kBusy) return false;
  (*longest)->connection.make_room();
  return true;
}

void HttpServer::State::welcome(Socket socket) {
  remove_finished();
  const auto leaving = static_cast<std::size_t>(
      std::ranges::count_if(slots, [](const auto& slot) { return slot->connection.is_leaving(); }));
  const bool full =
      slots.size() - std::min(leaving, kMostLeaving) >= options.most_connections && !make_room();
  if (full &&
      (access->tls() == nullptr || slots.size() >= options.most_connections + kMostTurnedAway)) {
    log().add(service::LogLevel::kWarn, "connection refused",
              {{"peer", peer_of(socket)}, {"reason", "too many connections"}});
    if (access->tls() == nullptr) turn_away(socket, routes.find({}).error_body);
    return;
  }
  // Their threads have a moment to end.
  if (leaving >= kMostLeaving) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  try {
    slots.emplace_back();
    slots.back() = std::move(next);
    Slot* slot = slots.back().get();
    slot->connection.begin_idle();
    slot->thread = std::thread([slot, full, own = std::move(socket)]() mutable {
      slot->connection.run(std::move(own), full);
      slot->done = true;
    });
  } catch (const std::exception&) {
    // No thread or no memory is to be had: the socket is closed.
    if (!next) next = std::move(slots.back());
    slots.remove(nullptr);
  }
}

void HttpServer::State::remove_finished() {
  slots.remove_if([](const std::unique_ptr<Slot>& slot) {
    if (!slot->done) return false;
    slot->thread.join();
    return true;
  });
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(service::Service& service,
                                                      const HttpOptions& options,
                                                      std::vector<Dialect> dialects) {
  auto only = std::make_unique<service::ModelPool>(service);
  service::ModelPool& models = *only;
  return start(std::move(only), models, options, std::move(dialects));
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(service::ModelPool& models,
                                                      const HttpOptions& options,
                                                      std::vector<Dialect> dialects) {
  return start(nullptr, models, options, std::move(dialects));
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(std::unique_ptr<service::ModelPool> only,
                                                      service::ModelPool& models,
                                                      const HttpOptions& options,
                                                      std::vector<Dialect> dialects) {
  KAKEYA_ASSIGN_OR_RETURN(auto access, Access::open(options));
  auto state = std::make_unique<State>(std::move(only), models, options, std::move(access),
                                       std::move(dialects));
  KAKEYA_TRY(state->listener.listen(options));
  State* shared = state.get();
  state->accept();
  state->thread = std::thread([shared] { shared->io.run(); });
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(state)));
  const std::string first = models.list().front().name;
  models.server().log().add(service::LogLevel::kInfo, "started",
                            {{"address", server->address()}, {"model", first}});
  return server;
}

Status HttpServer::check(const HttpOptions& options) {
  KAKEYA_TRY(Access::open(options));
  return {};
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() {
  stop();
}

std::string HttpServer::address() const {
  const std::string& place = state_->listener.place();
  if (!state_->options.socket_path.empty()) return "unix:" + place;
  return fmt::format("{}://{}", state_->access->tls() != nullptr ? "https" : "http", place);
}

std::uint16_t HttpServer::port() const {
  return state_->listener.port();
}

std::shared_ptr<Access> HttpServer::access() const {
  return state_->access;
}

Status HttpServer::reload() {
  service::ServerLog& log = state_->log();
  const Status opened = log.reopen();
  if (!opened) {
    log.add(service::LogLevel::kWarn, "log not opened anew",
            {{"reason", opened.error().message()}});
  }
  if (state_->options.keys_file.empty()) return opened;
  const auto keys = state_->access->reload_keys();
  if (!keys) {
    log.add(service::LogLevel::kWarn, "keys not reloaded", {{"reason", keys.error().message()}});
    return Unexpected(keys.error());
  }
  log.add(service::LogLevel::kInfo, "keys reloaded", {{"keys", *keys}});
  return opened;
}

void HttpServer::stop() {
  const std::lock_guard lock(state_->stopping);
  if (!state_->thread.joinable()) return;
  asio::post(state_->io, [this] {
    ErrorCode ignored;
    state_->listener.acceptor().close(ignored);
    state_->retry.cancel();
  });
  state_->thread.join();
  state_->site.models.stop();
  for (const auto& slot : state_->slots) slot->connection.stop();
  for (const auto& slot : state_->slots) slot->thread.join();
  state_->slots.clear();
  state_->log().add(service::LogLevel::kInfo, "stopped");
}

}  // namespace kakeya::wire
