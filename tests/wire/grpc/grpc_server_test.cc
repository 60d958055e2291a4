// Sessions over gRPC within one process, so that sanitizers see the server's side of calls that end
// in every way. tests/clients/grpc_test.py and grpc_restart_test.py have the promises.
#include "wire/grpc/grpc_server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <fstream>
#include <thread>

#include "formats/scratch_files.h"
#include "kakeya/v1/runtime.grpc.pb.h"
#include "runtime/demo_sessions.h"
#include "service/sessions/damaged_files.h"
#include "wire/http/access.h"

namespace kakeya::wire {
namespace {

using testing::HasSubstr;

class Grpc : public testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options = test::demo_options("auto");
    options.session.grow = true;
    options.prompt_cache_bytes = std::uint64_t{64} << 20;
    engine_ = test::open_engine(options);
    service_ = service::Service::create(*engine_, {}).value();
    auto server = GrpcServer::start(*service_, {.address = "127.0.0.1:0"}, access_);
    ASSERT_TRUE(server.has_value()) << server.error().message();
    server_ = std::move(*server);
    stub_ = v1::RuntimeService::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }

  std::string open(int tokens) {
    grpc::ClientContext creating;
    v1::CreateSessionResponse created;
    EXPECT_TRUE(stub_->CreateSession(&creating, {}, &created).ok());
    grpc::ClientContext appending;
    v1::AppendTokensRequest request;
    request.set_session_id(created.session_id());
    for (int i = 0; i < tokens; ++i) request.add_token_ids(static_cast<std::uint32_t>(130 + i));
    v1::AppendTokensResponse appended;
    EXPECT_TRUE(stub_->AppendTokens(&appending, request, &appended).ok());
    EXPECT_EQ(appended.history_length(), static_cast<std::uint64_t>(tokens));
    return created.session_id();
  }
  // The frames of a generation, of which `most` are read; then the client goes.
  std::vector<v1::GenerateResponse> generate(const std::string& id,
                                             std::uint32_t max_tokens,
                                             std::size_t most = 10'000) {
    grpc::ClientContext context;
    v1::GenerateRequest request;
    request.set_session_id(id);
    request.set_max_tokens(max_tokens);
    const auto reader = stub_->Generate(&context, request);
    std::vector<v1::GenerateResponse> frames;
    v1::GenerateResponse frame;
    while (frames.size() < most && reader->Read(&frame)) frames.push_back(frame);
    if (frames.size() == most) context.TryCancel();
    ended_ = reader->Finish();
    return frames;
  }

  std::shared_ptr<Access> access_ = Access::open({}).value();
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<service::Service> service_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::RuntimeService::Stub> stub_;
  grpc::Status ended_;
};

TEST_F(Grpc, CallsEndAndLeaveTheirSession) {
  const std::string id = open(30);
  const auto frames = generate(id, 6);
  ASSERT_FALSE(frames.empty());
  EXPECT_TRUE(ended_.ok()) << ended_.error_message();
  EXPECT_TRUE(frames.back().has_done());
  const std::string leaving = open(30);
  for (int i = 0; i < 10; ++i) {
    generate(leaving, 900, 1);
    EXPECT_TRUE(ended_.error_code() == grpc::StatusCode::CANCELLED ||
                ended_.error_code() == grpc::StatusCode::ABORTED);
  }
  generate("sess-none", 1);
  EXPECT_EQ(ended_.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(Grpc, ADamagedCatalogueIsToldWithoutItsPlace) {
  server_.reset();
  const ScratchFolder folder;
  const service::ServiceOptions options = {.sessions = {.folder = folder.root()}};
  service_.reset();
  service_ = service::Service::create(*engine_, options).value();
  // More than SQLite holds in memory.
  const std::vector<TokenId> ids(2'000'000, 1);
  ASSERT_TRUE(service_->sessions().put("127.0.0.1", {.id = "kept"}, ids));
  service_.reset();
  service_ = service::Service::create(*engine_, options).value();
  test::overwrite_pages(folder.path("sessions.sqlite"));
  server_ = GrpcServer::start(*service_, {.address = "127.0.0.1:0"}, access_).value();
  const auto stub = v1::RuntimeService::NewStub(
      grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::AppendTokensRequest request;
  request.set_session_id("kept");
  request.add_token_ids(1);
  v1::AppendTokensResponse appended;
  const grpc::Status refused = stub->AppendTokens(&context, request, &appended);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(refused.error_message(), "the catalogue of sessions is damaged");
}

TEST_F(Grpc, TheLogNamesTheTraceOfACall) {
  server_.reset();
  const ScratchFolder folder;
  service_ = service::Service::create(*engine_, {.log_file = folder.path("log")}).value();
  server_ = GrpcServer::start(*service_, {.address = "127.0.0.1:0"}, access_).value();
  const auto stub = v1::RuntimeService::NewStub(
      grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.AddMetadata("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  v1::CreateSessionResponse created;
  EXPECT_TRUE(stub->CreateSession(&context, {}, &created).ok());
  server_.reset();
  service_.reset();
  std::ifstream log(folder.path("log"));
  const std::string text(std::istreambuf_iterator<char>(log), {});
  EXPECT_THAT(text, HasSubstr(R"("trace_id":"4bf92f3577b34da6a3ce929d0e0e4736")"));
}

TEST_F(Grpc, AQuotaCountsCallsAndOtherRequestsTogether) {
  server_.reset();
  const ScratchFolder folder;
  const NewKey ann = make_key("ann").value();
  std::ofstream(folder.path("keys")) << ann.line << ":8\n";  // of which two are saved up
  access_ = Access::open({.keys_file = folder.path("keys")}).value();
  server_ = GrpcServer::start(*service_, {.address = "127.0.0.1:0"}, access_).value();
  const auto stub = v1::RuntimeService::NewStub(
      grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  const auto call = [&] {
    grpc::ClientContext context;
    context.AddMetadata("x-api-key", ann.key);
    v1::CreateSessionResponse created;
    return stub->CreateSession(&context, {}, &created).error_code();
  };
  EXPECT_EQ(call(), grpc::StatusCode::OK);
  service::Client client;
  EXPECT_TRUE(access_->admit({.x_api_key = ann.key}, true, client).has_value());
  EXPECT_EQ(client.key, "ann");
  EXPECT_EQ(call(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_FALSE(access_->admit({.x_api_key = ann.key}, true, client).has_value());
}

TEST_F(Grpc, AServerThatStopsEndsItsStreams) {
  const std::string id = open(30);
  std::thread stopping([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    service_->stop();
    server_->stop(std::chrono::seconds(5));
  });
  generate(id, 900);
  stopping.join();
  EXPECT_EQ(ended_.error_code(), grpc::StatusCode::UNAVAILABLE) << ended_.error_message();
}

TEST_F(Grpc, AnAddressThatIsNoneOrTakenIsRefused) {
  const auto refused = [&](const std::string& address) {
    const auto server = GrpcServer::start(*service_, {.address = address}, access_);
    return server ? "served" : server.error().message();
  };
  EXPECT_THAT(refused("localhost"), HasSubstr("expected HOST:PORT"));
  EXPECT_THAT(refused("127.0.0.1:99999"), HasSubstr("expected HOST:PORT"));
  EXPECT_THAT(refused("0.0.0.0:0"), HasSubstr("takes keys and TLS"));
  EXPECT_THAT(refused(server_->address()), HasSubstr("cannot be listened on"));
}

}  // namespace
}  // namespace kakeya::wire
