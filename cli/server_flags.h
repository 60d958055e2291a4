// Flags of commands that ask a server: where it is, and how it is trusted.
#pragma once

#include <string>

#include "cli/command.h"
#include "wire/client/chat_client.h"

namespace kakeya::cli {

struct ServerFlags {
  std::string url = {};          // http://HOST[:PORT], https://HOST[:PORT] or unix:PATH
  std::string key_file = {};     // empty: the environment's KAKEYA_API_KEY, if there is one
  std::string authorities = {};  // in PEM; empty: the system's
};

// --url, whose help is `what` and the forms it takes, --key-file and --tls-ca, which need it where
// it has no default; in `group`, if that is not empty.
void add_server_flags(CLI::App& command,
                      ServerFlags& flags,
                      const std::string& what,
                      const std::string& group = {});

// Errors: kInvalidArgument for what is no address and no key; as read_text for the key's file.
Result<client::ChatClientOptions> client_options(const ServerFlags& flags);

}  // namespace kakeya::cli
