#include "wire/grpc/grpc_server.h"

#include <fmt/format.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <charconv>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "base/status.h"
#include "wire/grpc/runtime_calls.h"
#include "wire/http/access.h"

namespace kakeya::wire {
namespace {

// A call that generates has a thread to its end.
constexpr int kMostThreads = 2048;
// Ids of a prompt are a few bytes each.
constexpr int kMostMessageBytes = 16 << 20;
constexpr std::chrono::seconds kHealthPause{1};

struct HostAndPort {
  std::string host;
  std::uint16_t port = 0;
};

// "[::1]:50051" has the host ::1.
Result<HostAndPort> parse_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  HostAndPort parsed;
  bool sound = colon != std::string::npos && colon > 0;
  if (sound) {
    parsed.host = address.substr(0, colon);
    if (parsed.host.front() == '[' && parsed.host.back() == ']') {
      parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
    }
    const char* const end = address.data() + address.size();
    const auto read = std::from_chars(address.data() + colon + 1, end, parsed.port);
    sound = read.ec == std::errc() && read.ptr == end && !parsed.host.empty();
  }
  if (sound) return parsed;
  return invalid_argument("GrpcOptions::address: expected HOST:PORT, as 127.0.0.1:50051, got '{}'",
                          address);
}

// The rules of keys and TLS are those of HTTP.
Status check_access(const GrpcOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(const HostAndPort address, parse_address(options.address));
  HttpOptions http;
  http.host = address.host;
  http.tls_certificate = options.tls_certificate;
  http.tls_key = options.tls_key;
  http.keys_file = options.keys_file;
  const auto access = Access::open(http);
  if (!access) return Unexpected(access.error().with_context("GrpcOptions::address"));
  return {};
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::shared_ptr<grpc::ServerCredentials> credentials_of(const GrpcOptions& options) {
  if (options.tls_certificate.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions tls;
  tls.pem_key_cert_pairs.push_back(
      {.private_key = text_of(options.tls_key), .cert_chain = text_of(options.tls_certificate)});
  return grpc::SslServerCredentials(tls);
}

class Server final : public GrpcServer {
 public:
  Server(service::Service& service, std::shared_ptr<Access> access)
      : service_(service), access_(std::move(access)), calls_(service, *access_) {}
  ~Server() override { stop(std::chrono::milliseconds(0)); }

  Status listen(const GrpcOptions& options);

  std::string address() const override { return address_; }
  void stop(std::chrono::milliseconds grace) override;

 private:
  // Says in grpc.health.v1 how the service is.
  void watch_health();

  service::Service& service_;
  const std::shared_ptr<Access> access_;
  RuntimeCalls calls_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // under mutex_
  std::thread watcher_;
};

Status Server::listen(const GrpcOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(const HostAndPort wanted, parse_address(options.address));
  // Errors are told by status; gRPC would write lines of its own to standard error besides.
  ::gpr_set_log_function([](gpr_log_func_args*) {});
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  grpc::ResourceQuota quota("kakeya");
  quota.SetMaxThreads(kMostThreads);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMostMessageBytes);
  // Another server on the port is to be noticed.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  const bool is_v6 = wanted.host.find(':') != std::string::npos;
  const std::string host = is_v6 ? "[" + wanted.host + "]" : wanted.host;
  int port = 0;
  builder.AddListeningPort(fmt::format("{}:{}", host, wanted.port), credentials_of(options), &port);
  builder.RegisterService(&calls_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return error(StatusCode::kUnavailable,
                 "GrpcOptions::address {} cannot be listened on: another program may have it",
                 options.address);
  }
  address_ = fmt::format("{}:{}", host, port);
  watcher_ = std::thread([this] { watch_health(); });
  return {};
}

void Server::watch_health() {
  std::unique_lock lock(mutex_);
  do {
    server_->GetHealthCheckService()->SetServingStatus(service_.health().is_well() &&
                                                       !service_.server().has_announced_drain());
  } while (!changed_.wait_for(lock, kHealthPause, [this] { return stopping_; }));
}

void Server::stop(std::chrono::milliseconds grace) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopping_, true)) return;
    changed_.notify_all();
  }
  if (watcher_.joinable()) watcher_.join();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + grace);
}

}  // namespace

bool GrpcServer::is_available() {
  return true;
}

Status GrpcServer::check(const GrpcOptions& options) {
  return check_access(options);
}

Result<std::unique_ptr<GrpcServer>> GrpcServer::start(service::Service& service,
                                                      const GrpcOptions& options,
                                                      std::shared_ptr<Access> access) {
  KAKEYA_TRY(check(options));
  auto server = std::make_unique<Server>(service, std::move(access));
  KAKEYA_TRY(server->listen(options));
  return server;
}

}  // namespace kakeya::wire
