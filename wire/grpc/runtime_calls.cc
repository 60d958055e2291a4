#include "wire/grpc/runtime_calls.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/random_id.h"
#include "service/trace_context.h"
#include "wire/grpc/runtime_messages.h"

namespace kakeya::wire {
namespace {

using service::Outcome;
using service::Refusal;
using service::SessionRow;
using service::SessionRun;

constexpr std::int64_t kMostListed = 1000;
// The time after which a call that waits looks whether its client is still there.
constexpr std::chrono::milliseconds kLook{20};

// Wakes the thread of a call.
class Bell {
 public:
  void ring() {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    changed_.notify_one();
  }
  // Returns whether it was rung.
  bool wait_for(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return rung_; });
    return std::exchange(rung_, false);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool rung_ = false;
};

// "ipv4:127.0.0.1:5000" is 127.0.0.1, "ipv6:%5B::1%5D:5000" is ::1, as over HTTP.
std::string address_of(const std::string& peer) {
  std::string text = peer.substr(peer.find(':') + 1);
  for (const auto& [coded, plain] : {std::pair{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}}) {
    const std::size_t at = text.find(coded);
    if (at != std::string::npos) text.replace(at, std::string_view(coded).size(), plain);
  }
  if (peer.starts_with("unix")) return "unix";
  return text.substr(0, text.rfind(':'));
}

std::string_view metadata_of(const grpc::ServerContext& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

// All entries of a name, in order, as one that has them all.
std::string joined_metadata(const grpc::ServerContext& context, const char* name) {
  std::string all;
  const auto [begin, end] = context.client_metadata().equal_range(name);
  for (auto entry = begin; entry != end; ++entry) {
    if (entry != begin) all += ',';
    all.append(entry->second.data(), entry->second.size());
  }
  return all;
}

// The deadline that the client has set; none if it waits for ever.
std::optional<std::chrono::steady_clock::time_point> deadline_of(
    const grpc::ServerContext& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  if (left > std::chrono::hours(24 * 365)) return {};
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(left);
}

grpc::Status denied(const Denial& denial) {
  const auto code = denial.status == 429 ? grpc::StatusCode::RESOURCE_EXHAUSTED
                                         : grpc::StatusCode::UNAUTHENTICATED;
  return {code, denial.refusal.message};
}

Refusal gone() {
  return {.status = StatusCode::kCancelled, .message = "the client has gone"};
}

}  // namespace

grpc::Status RuntimeCalls::answer(grpc::ServerContext& context,
                                  const char* what,
                                  bool takes_work,
                                  const Answer& answer) {
  service::ServerState& server = service_.server();
  const service::Answering answering(server);
  service::RequestRecord record(
      server.log(), {.address = access_.proxies().client_of(
                         address_of(context.peer()), joined_metadata(context, "forwarded"),
                         joined_metadata(context, "x-forwarded-for"))});
  record.begin(what);
  record.id = random_id("call-");
  record.trace_id = service::trace_id_of(metadata_of(context, "traceparent"));
  record.arrived = std::chrono::steady_clock::now();
  service::Client& client = record.client;
  const auto let_in = access_.admit({.authorization = metadata_of(context, "authorization"),
                                     .x_api_key = metadata_of(context, "x-api-key")},
                                    takes_work, client);
  if (!let_in) {
    record.fail(let_in.error().refusal.status);
    record.finish();
    return denied(let_in.error());
  }
  if (!client.key.empty()) server.counts().count_request(client.key);
  Outcome<void> answered = takes_work && server.is_draining()
                               ? tl::unexpected(Refusal{.status = StatusCode::kUnavailable,
                                                        .message = "the server is shutting down"})
                               : answer(client.name());
  if (!answered) record.fail(answered.error().status);
  record.finish();
  return answered ? grpc::Status::OK : to_status(answered.error());
}

Outcome<service::SessionRunResult> RuntimeCalls::follow(
    const grpc::ServerContext& context,
    const std::function<Outcome<std::unique_ptr<SessionRun>>(std::function<void()> wake)>& begin,
    const TakeTokens& take) {
  const auto bell = std::make_shared<Bell>();
  bell->ring();  // a run that has nothing to run rings none
  const auto run = begin([bell] { bell->ring(); });
  if (!run) return tl::unexpected(run.error());
  std::vector<service::GeneratedToken> tokens;
  while (!(*run)->finished()) {
    const bool rung = bell->wait_for(kLook);
    if (context.IsCancelled()) return tl::unexpected(gone());
    if (!rung) continue;
    tokens.clear();
    const Status taken = (*run)->take(tokens);
    if (!tokens.empty() && !take(tokens)) return tl::unexpected(gone());
    if (!taken) return tl::unexpected(service::refusal_of(taken.error()));
  }
  return (*run)->result();
}

Outcome<void> RuntimeCalls::created(const Outcome<SessionRow>& row,
                                    v1::CreateSessionResponse* response) {
  if (!row) return tl::unexpected(row.error());
  const auto options = service::session_options_of(service_.engine(), row->mode);
  if (!options) return tl::unexpected(options.error());
  response->set_session_id(row->id);
  response->set_history_length(static_cast<std::uint64_t>(row->tokens));
  v1::DecodeMode mode = v1::DECODE_MODE_UNSPECIFIED;
  write_mode(service_.engine(), *options, &mode, response->mutable_kv_policy());
  response->set_decode_mode(mode);
  return {};
}

Outcome<void> RuntimeCalls::describe(const SessionRow& row, v1::GetSessionInfoResponse* response) {
  const auto options = service::session_options_of(service_.engine(), row.mode);
  if (!options) return tl::unexpected(options.error());
  write_info(row, service::unix_time(), response);
  v1::DecodeMode mode = v1::DECODE_MODE_UNSPECIFIED;
  write_mode(service_.engine(), *options, &mode, response->mutable_kv_policy());
  response->set_decode_mode(mode);
  const auto held = service_.sessions().footprint(row.owner, row.id);
  if (!held) return tl::unexpected(held.error());
  response->set_kv_live_bytes(held->memory_bytes);
  response->set_kv_disk_bytes(held->disk_bytes);
  response->set_cached_tokens(static_cast<std::uint64_t>(held->cached_tokens));
  return {};
}

grpc::Status RuntimeCalls::CreateSession(grpc::ServerContext* context,
                                         const v1::CreateSessionRequest* request,
                                         v1::CreateSessionResponse* response) {
  return answer(*context, "CreateSession", true, [&](const std::string& owner) -> Outcome<void> {
    const auto wish = read_new_session(*request);
    if (!wish) return tl::unexpected(wish.error());
    return created(service_.sessions().create(owner, *wish), response);
  });
}

grpc::Status RuntimeCalls::AppendTokens(grpc::ServerContext* context,
                                        const v1::AppendTokensRequest* request,
                                        v1::AppendTokensResponse* response) {
  return answer(*context, "AppendTokens", true, [&](const std::string& owner) -> Outcome<void> {
    auto ids = read_token_ids(request->token_ids(), "token_ids");
    if (!ids) return tl::unexpected(std::move(ids).error());
    const auto result = follow(
        *context,
        [&](std::function<void()> wake) {
          return service_.sessions().append(
              owner, request->session_id(), std::move(*ids),
              {.prompt = {}, .client = owner, .deadline = deadline_of(*context)}, std::move(wake));
        },
        [](const auto&) { return true; });
    if (!result) return tl::unexpected(result.error());
    response->set_history_length(static_cast<std::uint64_t>(result->tokens));
    response->set_cached_tokens(static_cast<std::uint64_t>(result->cached_tokens));
    response->set_prefill_duration_seconds(result->prefill_seconds);
    return {};
  });
}

grpc::Status RuntimeCalls::Generate(grpc::ServerContext* context,
                                    const v1::GenerateRequest* request,
                                    grpc::ServerWriter<v1::GenerateResponse>* writer) {
  return answer(*context, "Generate", true, [&](const std::string& owner) -> Outcome<void> {
    auto wanted = read_generation(*request, service_.options().draft_length);
    if (!wanted) return tl::unexpected(std::move(wanted).error());
    wanted->client = owner;
    wanted->deadline = deadline_of(*context);
    const auto row = service_.sessions().find(owner, request->session_id());
    if (!row) return tl::unexpected(row.error());
    // Ids that the client gave stand in place of the model's own.
    wanted->generate.ignore_model_stop_ids = !row->stop_ids.empty();
    const auto options = service::session_options_of(service_.engine(), row->mode);
    if (!options) return tl::unexpected(options.error());
    const std::int64_t dropped = dropped_tokens(*options, row->tokens);
    const auto write = [&](const std::vector<service::GeneratedToken>& tokens) {
      v1::GenerateResponse frame;
      for (const service::GeneratedToken& token : tokens) {
        const auto id = static_cast<std::uint32_t>(token.id);
        if (!request->packed()) {
          frame.set_token_id(id);
          if (!writer->Write(frame)) return false;
          continue;
        }
        v1::TokenBatch* const batch = frame.mutable_tokens();
        batch->add_token_ids(id);
        batch->set_drafted(batch->drafted() + (token.drafted ? 1 : 0));
      }
      return !request->packed() || writer->Write(frame);
    };
    const auto result = follow(
        *context,
        [&](std::function<void()> wake) {
          auto run = service_.sessions().generate(owner, request->session_id(), std::move(*wanted),
                                                  std::move(wake));
          if (run && dropped > 0) {
            v1::GenerateResponse frame;
            frame.mutable_truncated()->set_dropped_token_count(static_cast<std::uint64_t>(dropped));
            writer->Write(frame);
          }
          return run;
        },
        write);
    if (!result) return tl::unexpected(result.error());
    v1::GenerateResponse last;
    write_done(*result, last.mutable_done());
    writer->Write(last);
    return {};
  });
}

grpc::Status RuntimeCalls::CloseSession(grpc::ServerContext* context,
                                        const v1::CloseSessionRequest* request,
                                        v1::CloseSessionResponse* response) {
  return answer(*context, "CloseSession", false, [&](const std::string& owner) -> Outcome<void> {
    const auto row = service_.sessions().close(owner, request->session_id());
    if (!row) return tl::unexpected(row.error());
    response->set_final_history_length(static_cast<std::uint64_t>(row->tokens));
    return {};
  });
}

grpc::Status RuntimeCalls::GetSessionInfo(grpc::ServerContext* context,
                                          const v1::GetSessionInfoRequest* request,
                                          v1::GetSessionInfoResponse* response) {
  return answer(*context, "GetSessionInfo", false, [&](const std::string& owner) -> Outcome<void> {
    const auto row = service_.sessions().find(owner, request->session_id());
    if (!row) return tl::unexpected(row.error());
    return describe(*row, response);
  });
}

namespace {

// A number of tokens, which no session has 2^63 of.
Outcome<std::int64_t> read_length(std::uint64_t length) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (length <= kMost) return static_cast<std::int64_t>(length);
  return tl::unexpected(
      Refusal{.message = fmt::format("length: expected a number of tokens, got {}", length),
              .parameter = "length"});
}

}  // namespace

grpc::Status RuntimeCalls::ForkSession(grpc::ServerContext* context,
                                       const v1::ForkSessionRequest* request,
                                       v1::CreateSessionResponse* response) {
  return answer(*context, "ForkSession", true, [&](const std::string& owner) -> Outcome<void> {
    std::optional<std::int64_t> length;
    if (request->has_length()) {
      auto asked = read_length(request->length());
      if (!asked) return tl::unexpected(asked.error());
      length = *asked;
    }
    const service::NewSession wish = {.label = request->client_label()};
    return created(service_.sessions().fork(owner, request->session_id(), wish, length), response);
  });
}

grpc::Status RuntimeCalls::TruncateSession(grpc::ServerContext* context,
                                           const v1::TruncateSessionRequest* request,
                                           v1::GetSessionInfoResponse* response) {
  return answer(*context, "TruncateSession", false, [&](const std::string& owner) -> Outcome<void> {
    const auto length = read_length(request->length());
    if (!length) return tl::unexpected(length.error());
    const auto row = service_.sessions().truncate(owner, request->session_id(), *length);
    if (!row) return tl::unexpected(row.error());
    return describe(*row, response);
  });
}

grpc::Status RuntimeCalls::ListSessions(grpc::ServerContext* context,
                                        const v1::ListSessionsRequest* request,
                                        v1::ListSessionsResponse* response) {
  return answer(*context, "ListSessions", false, [&](const std::string& owner) -> Outcome<void> {
    const std::int64_t most = request->most() == 0 ? kMostListed : request->most();
    const auto rows = service_.sessions().list(owner, std::min(most, kMostListed));
    if (!rows) return tl::unexpected(rows.error());
    for (const SessionRow& row : *rows) {
      if (auto described = describe(row, response->add_sessions()); !described) return described;
    }
    return {};
  });
}

}  // namespace kakeya::wire
