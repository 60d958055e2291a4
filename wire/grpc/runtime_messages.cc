#include "wire/grpc/runtime_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "service/answer_request.h"

namespace kakeya::wire {
namespace {

using service::Decoding;

tl::unexpected<service::Refusal> refuse(const char* field, std::string message) {
  return tl::unexpected(
      service::Refusal{.message = fmt::format("{}: {}", field, message), .parameter = field});
}

// Values of an enum that no name stands for come as they are.
std::optional<Decoding> decoding_of(v1::DecodeMode mode) {
  switch (mode) {
    case v1::DECODE_MODE_UNSPECIFIED:
      return Decoding::kAuto;
    case v1::DECODE_MODE_PLAIN:
      return Decoding::kPlain;
    case v1::DECODE_MODE_SPECULATIVE:
      return Decoding::kSpeculative;
    default:
      return {};
  }
}

v1::Evicted evicted_of(Evicted evicted) {
  switch (evicted) {
    case Evicted::kKeep:
      return v1::EVICTED_KEEP;
    case Evicted::kDrop:
      return v1::EVICTED_DROP;
    case Evicted::kRestore:
      return v1::EVICTED_RESTORE;
  }
  return v1::EVICTED_UNSPECIFIED;
}

v1::StopReason stop_reason_of(StopReason reason) {
  switch (reason) {
    case StopReason::kStopId:
      return v1::STOP_REASON_EOS;
    case StopReason::kMaxTokens:
      return v1::STOP_REASON_MAX_TOKENS;
    case StopReason::kContext:
      return v1::STOP_REASON_TRUNCATED;
    case StopReason::kCallback:
      return v1::STOP_REASON_CANCELLED;
  }
  return v1::STOP_REASON_UNSPECIFIED;
}

}  // namespace

grpc::Status to_status(const service::Refusal& refusal) {
  const auto code = refusal.code == service::kSessionBusy
                        ? grpc::StatusCode::ABORTED
                        : static_cast<grpc::StatusCode>(refusal.status);
  return {code, refusal.message};
}

service::Outcome<std::vector<TokenId>> read_token_ids(
    const google::protobuf::RepeatedField<std::uint32_t>& ids, const char* field) {
  std::vector<TokenId> read;
  read.reserve(static_cast<std::size_t>(ids.size()));
  for (const std::uint32_t id : ids) {
    if (id > static_cast<std::uint32_t>(std::numeric_limits<TokenId>::max())) {
      return refuse(field, fmt::format("expected ids of the vocabulary, got {}", id));
    }
    read.push_back(static_cast<TokenId>(id));
  }
  return read;
}

service::Outcome<service::NewSession> read_new_session(const v1::CreateSessionRequest& request) {
  service::NewSession wish = {.label = request.client_label()};
  auto stop_ids = read_token_ids(request.eos_token_ids(), "eos_token_ids");
  if (!stop_ids) return tl::unexpected(std::move(stop_ids).error());
  wish.stop_ids = std::move(*stop_ids);
  const auto decoding = decoding_of(request.decode_mode());
  if (!decoding) {
    return refuse("decode_mode",
                  fmt::format("expected 0 to 2, got {}", static_cast<int>(request.decode_mode())));
  }
  wish.mode.decoding = *decoding;
  const v1::KvPolicy& policy = request.kv_policy();
  switch (policy.evicted()) {
    case v1::EVICTED_UNSPECIFIED:
      break;
    case v1::EVICTED_KEEP:
      wish.mode.evicted = Evicted::kKeep;
      break;
    case v1::EVICTED_DROP:
      wish.mode.evicted = Evicted::kDrop;
      break;
    case v1::EVICTED_RESTORE:
      wish.mode.evicted = Evicted::kRestore;
      break;
    default:
      return refuse("kv_policy.evicted",
                    fmt::format("expected 0 to 3, got {}", static_cast<int>(policy.evicted())));
  }
  if (policy.has_sink()) wish.mode.sink = policy.sink();
  if (policy.has_window()) wish.mode.window = policy.window();
  return wish;
}

service::Outcome<Request> read_generation(const v1::GenerateRequest& request,
                                          std::int64_t draft_length) {
  if (request.max_tokens() == 0) return refuse("max_tokens", "expected at least 1, got 0");
  if (request.top_k() > static_cast<std::uint32_t>(std::numeric_limits<int>::max())) {
    return refuse("top_k", fmt::format("expected at most {}, got {}",
                                       std::numeric_limits<int>::max(), request.top_k()));
  }
  Request read = {.prompt = {}, .generate = {.max_tokens = request.max_tokens()}};
  read.generate.draft_length = draft_length;
  SamplingOptions& sampling = read.generate.sampling;
  sampling.seed = request.has_seed() ? request.seed() : service::random_seed();
  sampling.temperature = request.temperature();
  sampling.top_k = static_cast<int>(request.top_k());
  if (request.has_top_p()) sampling.top_p = request.top_p();
  sampling.min_p = request.min_p();
  if (request.has_repetition_penalty()) sampling.repetition_penalty = request.repetition_penalty();
  sampling.presence_penalty = request.presence_penalty();
  sampling.frequency_penalty = request.frequency_penalty();
  return read;
}

void write_mode(const Engine& engine,
                const SessionOptions& options,
                v1::DecodeMode* decode_mode,
                v1::KvPolicy* policy) {
  const bool drafts = options.drafting && engine.draft_kind() != DraftKind::kNone;
  *decode_mode = drafts ? v1::DECODE_MODE_SPECULATIVE : v1::DECODE_MODE_PLAIN;
  policy->set_evicted(evicted_of(options.evicted_full));
  if (options.evicted_full == Evicted::kKeep) return;
  policy->set_sink(static_cast<std::uint32_t>(options.sink));
  policy->set_window(static_cast<std::uint32_t>(options.window));
}

void write_info(const service::SessionRow& row, double now, v1::GetSessionInfoResponse* info) {
  info->set_session_id(row.id);
  info->set_client_label(row.label);
  info->set_parent_session_id(row.parent);
  info->set_history_length(static_cast<std::uint64_t>(row.tokens));
  info->set_idle_seconds(std::max(0.0, now - row.used));
}

void write_done(const service::SessionRunResult& result, v1::GenerateDone* done) {
  const auto count = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  done->set_stop_reason(stop_reason_of(result.stop_reason));
  done->set_generated_token_count(static_cast<std::uint32_t>(result.generated));
  done->set_prefill_duration_seconds(result.prefill_seconds);
  done->set_total_duration_seconds(result.queue_seconds + result.prefill_seconds +
                                   result.decode_seconds);
  done->set_queue_duration_seconds(result.queue_seconds);
  done->set_cached_tokens(count(result.cached_tokens));
  done->set_prompt_rows(count(result.prompt_rows));
  done->set_rounds(count(result.rounds));
  done->set_drafted_tokens(count(result.drafted));
  done->set_accepted_tokens(count(result.accepted));
  done->set_history_length(count(result.tokens));
}

std::int64_t dropped_tokens(const SessionOptions& options, std::int64_t tokens) {
  if (options.evicted_full != Evicted::kDrop) return 0;
  return std::max<std::int64_t>(0, tokens - options.sink - options.window);
}

}  // namespace kakeya::wire
