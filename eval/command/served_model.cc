#include "eval/command/served_model.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "cli/failure.h"
#include "kakeya/status_macros.h"

namespace kakeya::cli {

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

Status check_served_flags(const CLI::App& command) {
  if (command.get_option("--url")->count() == 0) return {};
  constexpr std::array<std::string_view, 3> kGroups = {"Machine", "KV cache", "Speculation"};
  for (const CLI::Option* const option : command.get_options()) {
    const std::string name = option->get_single_name();
    const bool of_engine = name == "memory" || name == "ctx" ||
                           std::ranges::find(kGroups, option->get_group()) != kGroups.end();
    if (!of_engine || option->count() == 0) continue;
    return bad_usage("--{} excludes --url: the server's engine has its own", name);
  }
  return {};
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
