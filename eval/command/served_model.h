// A model that a server holds, as evaluations ask it.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command.h"
#include "cli/server_flags.h"
#include "eval/prompts/served_text.h"
#include "wire/client/chat_client.h"

namespace kakeya::cli {

// A model that a server holds, for evaluations.
struct ServedModel {
  client::ChatClientOptions server = {};
  std::string name = {};
};

// --model-name and --parallel, for commands with --url; both in `group`.
void add_served_model_flags(CLI::App& command,
                            std::string& model_name,
                            std::int64_t& parallel,
                            const std::string& group);

// Refuses flags of an engine, its sessions and its drafts beside --url: a server has its own.
// Errors: kInvalidArgument, with the first of them.
Status check_served_flags(const CLI::App& command);

// The model of that name, or if it is empty the first one that the server lists. Errors: as
// client_options; kUnavailable if no server answers.
Result<ServedModel> open_served_model(const ServerFlags& flags, const std::string& model_name);

// The greedy answer to a user's message, of so many tokens at most. Any thread. Errors: the
// server's.
Result<eval::ServedText> ask_served_model(const ServedModel& model,
                                          const std::string& prompt,
                                          std::int64_t max_tokens);

}  // namespace kakeya::cli
