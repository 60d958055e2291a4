// Sessions over gRPC: kakeya.v1.RuntimeService (proto/kakeya/v1/runtime.proto), grpc.health.v1 and
// server reflection.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "kakeya/status.h"
#include "service/service.h"
#include "wire/grpc/grpc_options.h"

namespace kakeya::wire {

class Access;

// Thread-safe.
class GrpcServer {
 public:
  // True if the build has gRPC; else start() and check() refuse with kUnimplemented.
  static bool is_available();

  // Listens and answers from here on, who `access` lets in, which has the keys and trusted proxies
  // of HTTP and counts both's requests. The service must outlive it. Errors: kInvalidArgument for
  // an address that is none, one that other machines reach without keys and TLS, files that are
  // none; kUnavailable for an address that is taken.
  static Result<std::unique_ptr<GrpcServer>> start(service::Service& service,
                                                   const GrpcOptions& options,
                                                   std::shared_ptr<Access> access);
  // Checks the options as start() does, before there is a service.
  static Status check(const GrpcOptions& options);

  virtual ~GrpcServer() = default;

  // "127.0.0.1:50051"
  virtual std::string address() const = 0;
  // Ends all calls, after so long those that have not ended by themselves: call it when the service
  // was stopped or has nothing to answer.
  virtual void stop(std::chrono::milliseconds grace) = 0;
};

}  // namespace kakeya::wire
