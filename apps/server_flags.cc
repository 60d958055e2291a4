#include "server_flags.h"

#include <cstdlib>
#include <utility>

#include "failure.h"
#include "report.h"

namespace kakeya::cli {
namespace {

// The key of --key-file, else of the environment; empty: none.
Result<std::string> key_of(const ServerFlags& flags) {
  std::string key;
  if (!flags.key_file.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(key, read_text(flags.key_file));
    key.resize(key.find_last_not_of(" \t\r\n") + 1);
  } else if (const char* const given = std::getenv("KAKEYA_API_KEY"); given != nullptr) {
    key = given;
  }
  // It becomes a line of a header.
  for (const char c : key) {
    if (c <= ' ' || c > '~') return bad_usage("a key must be one word of ASCII");
  }
  return key;
}

}  // namespace

void add_server_flags(CLI::App& command,
                      ServerFlags& flags,
                      const std::string& what,
                      const std::string& group) {
  CLI::Option* const options[] = {
      command
          .add_option("--url", flags.url,
                      what + ": http://HOST[:PORT]" +
                          (flags.url.empty() ? "" : " (default: " + flags.url + ")") +
                          ", https://... or unix:PATH")
          ->type_name("URL"),
      command
          .add_option("--key-file", flags.key_file,
                      "File with the key that the server asks for (default: the environment's "
                      "KAKEYA_API_KEY)")
          ->type_name("FILE"),
      command
          .add_option("--tls-ca", flags.authorities,
                      "Certificates to trust for https, in PEM (default: the system's)")
          ->type_name("FILE")};
  if (group.empty()) return;
  for (CLI::Option* const option : options) option->group(group);
}

Result<client::ChatClientOptions> client_options(const ServerFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(client::ServerAddress address, client::parse_server_url(flags.url));
  if (!flags.authorities.empty()) {
    if (!address.tls) return bad_usage("--tls-ca is for a URL of https");
    KAKEYA_TRY(read_text(flags.authorities));  // rather now than when the server is reached
  }
  KAKEYA_ASSIGN_OR_RETURN(std::string key, key_of(flags));
  return client::ChatClientOptions{
      .address = std::move(address), .key = std::move(key), .authorities = flags.authorities};
}

void add_served_model_flags(CLI::App& command,
                            std::string& model_name,
                            std::int64_t& parallel,
                            const std::string& group) {
  CLI::Option* const url = command.get_option("--url");
  command
      .add_option("--model-name", model_name,
                  "The server's name of the model (default: the first that it lists)")
      ->needs(url)
      ->type_name("NAME")
      ->group(group);
  command.add_option("--parallel", parallel, "Most requests at a time (default: 1)")
      ->check(CLI::Range(1, 256))
      ->needs(url)
      ->type_name("N")
      ->group(group);
}

Result<ServedModel> open_served_model(const ServerFlags& flags, const std::string& model_name) {
  ServedModel model{.name = model_name};
  KAKEYA_ASSIGN_OR_RETURN(model.server, client_options(flags));
  if (model.name.empty()) {
    const client::ChatClient client(model.server, [] { return false; });
    KAKEYA_ASSIGN_OR_RETURN(model.name, client.model());
  }
  return model;
}

// Each question has a client of its own.
Result<eval::ServedText> ask_served_model(const ServedModel& model,
                                          const std::string& prompt,
                                          std::int64_t max_tokens) {
  const client::ChatClient client(model.server, [] { return false; });
  KAKEYA_ASSIGN_OR_RETURN(client::ChatReply reply,
                          client.ask({{"model", model.name},
                                      {"messages", {{{"role", "user"}, {"content", prompt}}}},
                                      {"temperature", 0},
                                      {"max_tokens", max_tokens}},
                                     [](std::string_view) {}));
  return eval::ServedText{
      .text = std::move(reply.text), .tokens = reply.tokens, .seconds = reply.seconds};
}

}  // namespace kakeya::cli
