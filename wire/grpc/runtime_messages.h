// Messages of kakeya.v1 and what the service has for them. Pure.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kakeya/scheduler.h"
#include "kakeya/v1/runtime.pb.h"
#include "service/refusal.h"
#include "service/sessions/sessions.h"

namespace kakeya::wire {

// The codes are those of the library; an operation beside another one of the session is ABORTED.
grpc::Status to_status(const service::Refusal& refusal);

// Errors of all: kInvalidArgument, naming the field.
service::Outcome<service::NewSession> read_new_session(const v1::CreateSessionRequest& request);
service::Outcome<std::vector<TokenId>> read_token_ids(
    const google::protobuf::RepeatedField<std::uint32_t>& ids, const char* field);
// A request without a prompt. Without a seed sampling has a random one; without a temperature it is
// greedy, as the first kakeya.v1 always was.
service::Outcome<Request> read_generation(const v1::GenerateRequest& request,
                                          std::int64_t draft_length);

// `options`: what the mode of the row stands for in the engine.
void write_mode(const Engine& engine,
                const SessionOptions& options,
                v1::DecodeMode* decode_mode,
                v1::KvPolicy* policy);
void write_info(const service::SessionRow& row, double now, v1::GetSessionInfoResponse* info);
void write_done(const service::SessionRunResult& result, v1::GenerateDone* done);

// Tokens of a session of so many that its full-attention layers no longer attend to.
std::int64_t dropped_tokens(const SessionOptions& options, std::int64_t tokens);

}  // namespace kakeya::wire
