#include "wire/http/listener.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cstring>

#include "base/status.h"
#include "wire/http/local_address.h"

namespace kakeya::wire {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using LocalEndpoint = asio::local::stream_protocol::endpoint;

bool somebody_answers(const LocalEndpoint& endpoint) {
  asio::io_context io;
  asio::local::stream_protocol::socket socket(io);
  ErrorCode failure;
  socket.connect(endpoint, failure);
  return failure != asio::error::connection_refused;
}

// A socket's file stays behind when its server is killed.
Status remove_stale(const std::string& path, const LocalEndpoint& endpoint) {
  struct stat file = {};
  if (::lstat(path.c_str(), &file) != 0) return {};  // what else is wrong bind() says
  if (!S_ISSOCK(file.st_mode)) {
    return invalid_argument(
        "HttpOptions::socket_path must be a new file or an old socket, but {} "
        "is something else",
        path);
  }
  if (somebody_answers(endpoint)) {
    return error(StatusCode::kUnavailable, "somebody listens on the socket {}", path);
  }
  ::unlink(path.c_str());
  return {};
}

}  // namespace

Listener::~Listener() {
  struct stat file = {};
  if (path_.empty() || ::lstat(path_.c_str(), &file) != 0) return;
  if (file.st_dev == device_ && file.st_ino == inode_) ::unlink(path_.c_str());
}

Status Listener::listen(const HttpOptions& options) {
  if (!options.socket_path.empty()) return listen_on_path(options.socket_path);
  return listen_on_port(options);
}

Status Listener::listen_on_port(const HttpOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string host, listen_address(options.host));
  const tcp::endpoint wanted(asio::ip::make_address(host), options.port);
  ErrorCode failure;
  const auto attempt = [&](auto step) {
    if (!failure) step();
  };
  attempt([&] { acceptor_.open(wanted.protocol(), failure); });
  attempt([&] { acceptor_.set_option(asio::socket_base::reuse_address(true), failure); });
  attempt([&] { acceptor_.bind(wanted, failure); });
  attempt([&] { acceptor_.listen(asio::socket_base::max_listen_connections, failure); });
  tcp::endpoint bound;
  attempt([&] {
    const auto got = acceptor_.local_endpoint(failure);
    if (failure) return;
    std::memcpy(bound.data(), got.data(), got.size());
    bound.resize(got.size());
  });
  if (failure) {
    return error(StatusCode::kUnavailable, "port {} of {} cannot be listened on: {}", options.port,
                 host, failure.message());
  }
  port_ = bound.port();
  place_ = wanted.address().is_v6() ? fmt::format("[{}]:{}", host, port_)
                                    : fmt::format("{}:{}", host, port_);
  return {};
}

Status Listener::listen_on_path(const std::string& path) {
  constexpr std::size_t kMostBytes = 107;  // of sockaddr_un, with its end
  if (path.size() > kMostBytes) {
    return invalid_argument("HttpOptions::socket_path must have at most {} bytes but has {}",
                            kMostBytes, path.size());
  }
  const LocalEndpoint wanted(path);
  KAKEYA_TRY(remove_stale(path, wanted));
  ErrorCode failure;
  acceptor_.open(wanted.protocol(), failure);
  // Before there is a file, so that it never is anybody else's.
  if (!failure && ::fchmod(acceptor_.native_handle(), S_IRUSR | S_IWUSR) != 0) {
    failure = ErrorCode(errno, boost::system::system_category());
  }
  if (!failure) acceptor_.bind(wanted, failure);
  struct stat file = {};
  if (!failure && ::lstat(path.c_str(), &file) == 0) {
    path_ = path;
    device_ = file.st_dev;
    inode_ = file.st_ino;
  }
  if (!failure) acceptor_.listen(asio::socket_base::max_listen_connections, failure);
  if (failure) {
    return error(StatusCode::kUnavailable, "the socket {} cannot be listened on: {}", path,
                 failure.message());
  }
  place_ = path;
  return {};
}

}  // namespace kakeya::wire
