// Asks a server as OpenAI's clients do, for programs that only talk to one.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kakeya/status.h"

namespace kakeya::client {

struct ServerAddress {
  bool tls = false;
  std::string host;  // a name or an address, without brackets
  std::string port;
  std::string socket_path = {};  // of a Unix socket instead; empty: none
};

// "http://HOST[:PORT]", "https://HOST[:PORT]" or "unix:PATH". Errors: kInvalidArgument.
Result<ServerAddress> parse_server_url(const std::string& url);

struct ChatReply {
  std::string text;
  bool stopped = false;     // by the caller
  std::int64_t tokens = 0;  // 0: the server did not say
  double seconds = 0.0;     // from the first piece to the last
};

struct ChatClientOptions {
  ServerAddress address;
  std::string key = {};          // empty: none
  std::string authorities = {};  // in PEM, for https; empty: the system's
};

// One thread at a time. Each request has a connection of its own. Errors of its functions:
// kUnavailable if the server is not there, or goes away; else what the server says, as
// kInvalidArgument.
class ChatClient {
 public:
  // Called while it waits, some times a second: whether to give up.
  using Stop = std::function<bool()>;

  ChatClient(ChatClientOptions options, Stop stop)
      : options_(std::move(options)), stop_(std::move(stop)) {}

  // The first model that the server lists.
  Result<std::string> model() const;

  // Streams an answer to a body of /v1/chat/completions. `on_text` gets what is said, as it comes.
  Result<ChatReply> ask(nlohmann::json body,
                        const std::function<void(std::string_view)>& on_text) const;

 private:
  const ChatClientOptions options_;
  const Stop stop_;
};

}  // namespace kakeya::client
