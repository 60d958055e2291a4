// Stands in for the server of gRPC in builds without it.
#include "base/status.h"
#include "wire/grpc/grpc_server.h"

namespace kakeya::wire {

bool GrpcServer::is_available() {
  return false;
}

Status GrpcServer::check(const GrpcOptions&) {
  return error(StatusCode::kUnimplemented,
               "this build has no gRPC: install libgrpc++-dev, libprotobuf-dev and "
               "protobuf-compiler-grpc, and build again");
}

Result<std::unique_ptr<GrpcServer>> GrpcServer::start(service::Service&,
                                                      const GrpcOptions& options,
                                                      std::shared_ptr<Access>) {
  return Unexpected(check(options).error());
}

}  // namespace kakeya::wire
