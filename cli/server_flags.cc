#include "cli/server_flags.h"

#include <cstdlib>
#include <utility>

#include "cli/failure.h"
#include "cli/report.h"

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
  if (flags.url.empty()) {  // nothing is asked without one
    for (CLI::Option* const option : {options[1], options[2]}) option->needs(options[0]);
  }
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

}  // namespace kakeya::cli
