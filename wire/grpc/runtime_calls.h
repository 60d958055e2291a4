// The calls of kakeya.v1.RuntimeService.
#pragma once

#include <grpcpp/server_context.h>

#include <functional>
#include <string>

#include "kakeya/v1/runtime.grpc.pb.h"
#include "service/service.h"
#include "wire/http/access.h"

namespace kakeya::wire {

// From any thread; one a call. Service and access must outlive it.
class RuntimeCalls final : public v1::RuntimeService::Service {
 public:
  RuntimeCalls(service::Service& service, Access& access) : service_(service), access_(access) {}

  grpc::Status CreateSession(grpc::ServerContext* context,
                             const v1::CreateSessionRequest* request,
                             v1::CreateSessionResponse* response) override;
  grpc::Status AppendTokens(grpc::ServerContext* context,
                            const v1::AppendTokensRequest* request,
                            v1::AppendTokensResponse* response) override;
  grpc::Status Generate(grpc::ServerContext* context,
                        const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override;
  grpc::Status CloseSession(grpc::ServerContext* context,
                            const v1::CloseSessionRequest* request,
                            v1::CloseSessionResponse* response) override;
  grpc::Status GetSessionInfo(grpc::ServerContext* context,
                              const v1::GetSessionInfoRequest* request,
                              v1::GetSessionInfoResponse* response) override;
  grpc::Status ForkSession(grpc::ServerContext* context,
                           const v1::ForkSessionRequest* request,
                           v1::CreateSessionResponse* response) override;
  grpc::Status TruncateSession(grpc::ServerContext* context,
                               const v1::TruncateSessionRequest* request,
                               v1::GetSessionInfoResponse* response) override;
  grpc::Status ListSessions(grpc::ServerContext* context,
                            const v1::ListSessionsRequest* request,
                            v1::ListSessionsResponse* response) override;

 private:
  using Answer = std::function<service::Outcome<void>(const std::string& owner)>;
  // Lets the client in, runs `answer` for it, and writes the log's line. `what`: the call's name.
  grpc::Status answer(grpc::ServerContext& context,
                      const char* what,
                      bool takes_work,
                      const Answer& answer);
  // The tokens of a run, each batch as it comes; `take` returns false for a client that has gone.
  using TakeTokens = std::function<bool(const std::vector<service::GeneratedToken>& tokens)>;
  service::Outcome<service::SessionRunResult> follow(
      const grpc::ServerContext& context,
      const std::function<service::Outcome<std::unique_ptr<service::SessionRun>>(
          std::function<void()> wake)>& begin,
      const TakeTokens& take);
  // Fills what is known of a session.
  service::Outcome<void> describe(const service::SessionRow& row,
                                  v1::GetSessionInfoResponse* response);
  service::Outcome<void> created(const service::Outcome<service::SessionRow>& row,
                                 v1::CreateSessionResponse* response);

  service::Service& service_;
  Access& access_;
};

}  // namespace kakeya::wire
