// Flags of commands that ask a server: where it is, and how it is trusted.
#pragma once

#include <cstdint>
#include <string>

#include "command.h"
#include "served_text.h"
#include "wire/client/chat_client.h"

namespace kakeya::cli {

struct ServerFlags {
  std::string url = {};          // http://HOST[:PORT], https://HOST[:PORT] or unix:PATH
  std::string key_file = {};     // empty: the environment's KAKEYA_API_KEY, if there is one
  std::string authorities = {};  // in PEM; empty: the system's
};

// --url, whose help is `what` and the forms it takes, --key-file and --tls-ca; in `group`, if that
// is not empty.
void add_server_flags(CLI::App& command,
                      ServerFlags& flags,
                      const std::string& what,
                      const std::string& group = {});

// Errors: kInvalidArgument for what is no address and no key; as read_text for the key's file.
Result<client::ChatClientOptions> client_options(const ServerFlags& flags);

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

// The model of that name, or if it is empty the first one that the server lists. Errors: as
// client_options; kUnavailable if no server answers.
Result<ServedModel> open_served_model(const ServerFlags& flags, const std::string& model_name);

// The greedy answer to a user's message, of so many tokens at most. Any thread. Errors: the
// server's.
Result<eval::ServedText> ask_served_model(const ServedModel& model,
                                          const std::string& prompt,
                                          std::int64_t max_tokens);

}  // namespace kakeya::cli
