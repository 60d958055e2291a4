// kakeya bridge: named checks on somebody's machine, asked for and answered in signed files.
#include "bridge/bridge_command.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/system_facts.h"
#include "cli/terminal.h"
#include "keys.h"
#include "mailbox.h"
#include "outcome.h"
#include "presets.h"
#include "requester.h"
#include "service.h"
#include "small_file.h"

namespace kakeya::cli {
namespace {

struct BridgeFlags {
  std::string home;
  std::string name;  // keygen
  std::string where;
  std::vector<std::string> presets;  // serve; none: all
  std::vector<std::string> models;   // NAME=DIR
  bool once = false;
  int every_seconds = 10;
  bridge::RequestOptions request;
  int lifetime_hours = 24;
  std::vector<std::string> ids;  // fetch; none: all that wait
  int wait_seconds = 0;
};

// The flag that ends a check that runs, and the waiting for the next one.
std::atomic<bool> bridge_stop = false;

void stop_bridge(int /*signal*/) {
  bridge_stop = true;
}

// The first signal is a wish; the second one ends the program.
void stop_on_signals() {
  struct sigaction action = {};
  action.sa_handler = stop_bridge;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

std::int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void pause_bridge(double seconds) {
  const Stopwatch clock;
  while (!bridge_stop && clock.seconds() < seconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// --home, or the bridge's folder among the user's settings. Errors: kNotFound without either.
Result<std::string> home_of(const BridgeFlags& flags) {
  if (!flags.home.empty()) return flags.home;
  const char* const settings = std::getenv("XDG_CONFIG_HOME");
  if (settings != nullptr && settings[0] == '/') return std::string(settings) + "/kakeya/bridge";
  const char* const user = std::getenv("HOME");
  if (user == nullptr || user[0] != '/') {
    return error(StatusCode::kNotFound, "there is no HOME: name a folder for keys, --home DIR");
  }
  return std::string(user) + "/.config/kakeya/bridge";
}

Status make_bridge_key(const BridgeFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string home, home_of(flags));
  KAKEYA_ASSIGN_OR_RETURN(const bridge::SigningKey key, bridge::SigningKey::make());
  KAKEYA_ASSIGN_OR_RETURN(const std::string line,
                          bridge::Peers::line(flags.name, key.public_key()));
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(home).parent_path(), failed);
  KAKEYA_ASSIGN_OR_RETURN(const Descriptor folder, bridge::open_folder(AT_FDCWD, home));
  KAKEYA_TRY(key.save(home + "/key"));
  KAKEYA_TRY(bridge::write_small_file(folder.get(), "key.pub", line + "\n"));
  print("{}\n", line);
  note("the other side puts this line into its file peers, and you its line into " + home +
       "/peers");
  return {};
}

Result<std::vector<bridge::Preset>> presets_to_serve(const std::vector<std::string>& names) {
  const auto known = bridge::known_presets();
  if (names.empty()) return std::vector<bridge::Preset>(known.begin(), known.end());
  std::vector<bridge::Preset> presets;
  for (const std::string& name : names) {
    const bridge::Preset* const preset = bridge::find_preset(known, name);
    if (preset == nullptr) return invalid_argument("--presets: there is no preset '{}'", name);
    presets.push_back(*preset);
  }
  return presets;
}

// Programs and models of this machine, absolute: checks run in other folders.
Result<bridge::ServingPrograms> serving_programs(const std::vector<std::string>& models) {
  namespace fs = std::filesystem;
  bridge::ServingPrograms programs;
  const fs::path program = program_path();
  programs.paths["kakeya"] = program.string();
  programs.build = program.parent_path().parent_path().string();
  const std::string tools = find_shared_folder("tools", "mac_report");
  if (!tools.empty()) programs.paths["mac_report"] = fs::absolute(tools).string() + "/mac_report";
  const std::string demo = find_shared_folder("models/demo", "config.json");
  if (!demo.empty()) programs.models["demo"] = fs::absolute(demo).string();
  for (const std::string& word : models) {
    const std::size_t equal = word.find('=');
    std::error_code failed;
    if (equal == std::string::npos || equal == 0 || !fs::exists(word.substr(equal + 1), failed)) {
      return invalid_argument("--model: expected NAME=DIR with a folder or file, got '{}'", word);
    }
    programs.models[word.substr(0, equal)] = fs::absolute(word.substr(equal + 1)).string();
  }
  return programs;
}

Result<bridge::Service> make_service(const BridgeFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string home, home_of(flags));
  KAKEYA_ASSIGN_OR_RETURN(bridge::SigningKey key, bridge::SigningKey::load(home + "/key"));
  KAKEYA_ASSIGN_OR_RETURN(bridge::Peers peers, bridge::Peers::load(home + "/peers"));
  bridge::ServiceOptions options{.home = home,
                                 .presets = {},
                                 .programs = {},
                                 .now = seconds_since_1970,
                                 .say =
                                     [](const std::string& line) {
                                       print("{}\n", line);
                                       flush_output();
                                     },
                                 .stop = &bridge_stop};
  KAKEYA_ASSIGN_OR_RETURN(options.presets, presets_to_serve(flags.presets));
  KAKEYA_ASSIGN_OR_RETURN(options.programs, serving_programs(flags.models));
  return bridge::Service::create(std::move(key), std::move(peers), std::move(options));
}

// Serves; true if nothing was refused, which counts with --once.
Result<bool> serve_bridge(const BridgeFlags& flags) {
  stop_on_signals();
  KAKEYA_ASSIGN_OR_RETURN(bridge::Service service, make_service(flags));
  KAKEYA_ASSIGN_OR_RETURN(const std::unique_ptr<bridge::Mailbox> mailbox,
                          bridge::open_mailbox(flags.where, &bridge_stop));
  if (!flags.once)
    print("looks at {} every {} s; Ctrl-C ends it\n", flags.where, flags.every_seconds);
  while (!bridge_stop) {
    flush_output();
    const auto handled = service.handle_waiting(*mailbox);
    if (flags.once) {
      if (!handled) return Unexpected(handled.error());
      return handled->refused == 0;
    }
    // A disk or a network that is gone comes back.
    if (!handled && !bridge_stop) note(handled.error().message());
    pause_bridge(flags.every_seconds);
  }
  return true;
}

Result<bridge::Requester> open_requester(const BridgeFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string home, home_of(flags));
  return bridge::Requester::open(home);
}

Status request_check(BridgeFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(bridge::Requester requester, open_requester(flags));
  KAKEYA_ASSIGN_OR_RETURN(const std::unique_ptr<bridge::Mailbox> mailbox,
                          bridge::open_mailbox(flags.where));
  flags.request.where = bridge::absolute_place(flags.where);
  flags.request.lifetime = std::int64_t{3600} * flags.lifetime_hours;
  KAKEYA_ASSIGN_OR_RETURN(const std::string id,
                          requester.request(*mailbox, flags.request, seconds_since_1970()));
  print("{}\n", id);
  note("kakeya bridge fetch --wait 600 brings the answer");
  return {};
}

Status print_bridge_status(const BridgeFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const bridge::Requester requester, open_requester(flags));
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<bridge::Sent> sent, requester.sent());
  if (sent.empty()) print("nothing was asked for yet\n");
  const std::int64_t now = seconds_since_1970();
  for (const bridge::Sent& each : sent) {
    const std::string state = each.fetched ? "fetched"
                              : each.expires <= now
                                  ? "expired, without an answer that was fetched"
                                  : fmt::format("waits for {} s", now - each.issued);
    print("{}  {:<11} {}  {}  {}\n", each.id, each.preset, each.server, each.where, state);
  }
  return {};
}

// Says what came; whether it passes.
bool print_answer(const bridge::Requester& requester,
                  const bridge::Sent& asked,
                  const bridge::Outcome& outcome) {
  const bridge::Verdict verdict = bridge::judge(outcome, asked.preset, asked.parameters);
  print("{}  {}  {} in {:.1f} s\n", verdict.passes ? "ok  " : "FAIL", asked.id, asked.preset,
        outcome.seconds);
  for (const std::string& line : verdict.lines) print("      {}\n", line);
  if (outcome.report.is_object()) print("      {}\n", requester.report_path(asked.id));
  return verdict.passes;
}

Result<std::optional<bridge::Outcome>> look_for_answer(bridge::Requester& requester,
                                                       const bridge::Sent& asked) {
  KAKEYA_ASSIGN_OR_RETURN(const std::unique_ptr<bridge::Mailbox> mailbox,
                          bridge::open_mailbox(asked.where, &bridge_stop));
  return requester.fetch(*mailbox, asked);
}

// The jobs that were asked for, else all that wait.
Result<std::vector<bridge::Sent>> jobs_to_fetch(const bridge::Requester& requester,
                                                const std::vector<std::string>& ids) {
  KAKEYA_ASSIGN_OR_RETURN(std::vector<bridge::Sent> sent, requester.sent());
  std::erase_if(sent, [](const bridge::Sent& each) { return each.fetched; });
  if (ids.empty()) return sent;
  std::vector<bridge::Sent> chosen;
  for (const std::string& id : ids) {
    const auto found = std::ranges::find(sent, id, &bridge::Sent::id);
    if (found == sent.end()) return invalid_argument("no job '{}' waits: kakeya bridge status", id);
    chosen.push_back(*found);
  }
  return chosen;
}

// Fetches answers; true if all came and pass.
Result<bool> fetch_answers(const BridgeFlags& flags) {
  stop_on_signals();
  KAKEYA_ASSIGN_OR_RETURN(bridge::Requester requester, open_requester(flags));
  KAKEYA_ASSIGN_OR_RETURN(std::vector<bridge::Sent> waiting, jobs_to_fetch(requester, flags.ids));
  if (waiting.empty()) print("no job waits for an answer\n");
  const Stopwatch clock;
  bool all_pass = true;
  while (!bridge_stop) {
    std::vector<bridge::Sent> still;
    for (const bridge::Sent& each : waiting) {
      const auto outcome = look_for_answer(requester, each);
      if (outcome && !*outcome) {
        still.push_back(each);
      } else if (outcome) {
        all_pass = print_answer(requester, each, **outcome) && all_pass;
      } else {
        // A file that somebody laid there, or a place that is gone, is no reason not to look at the
        // rest.
        print("FAIL  {}  {}: {}\n", each.id, each.preset, outcome.error().message());
        all_pass = false;
      }
    }
    waiting = std::move(still);
    if (waiting.empty() || clock.seconds() >= flags.wait_seconds) break;
    pause_bridge(std::min(2.0, flags.wait_seconds - clock.seconds()));
  }
  for (const bridge::Sent& each : waiting) print("waits {}  {}\n", each.id, each.preset);
  return all_pass && waiting.empty();
}

std::string describe_parameter(const bridge::Parameter& parameter) {
  if (parameter.type == bridge::Parameter::Type::kInteger) {
    return fmt::format("{}={} ({} to {})", parameter.name, parameter.standard, parameter.least,
                       parameter.most);
  }
  std::string choices;
  for (const std::string& each : parameter.choices) choices += (choices.empty() ? "" : ", ") + each;
  return fmt::format("{}={}{}", parameter.name, parameter.standard,
                     choices.empty() ? " (a name that the machine has)" : " (" + choices + ")");
}

std::string describe_presets() {
  std::string text = "Presets, with their parameters:\n";
  for (const bridge::Preset& preset : bridge::known_presets()) {
    text += fmt::format("  {:<11} {}; at most {:.0f} minutes\n", preset.name, preset.says,
                        preset.seconds / 60.0);
    for (const bridge::Parameter& each : preset.parameters) {
      text += fmt::format("              {}\n", describe_parameter(each));
    }
  }
  return text;
}

constexpr const char* kWhere =
    "A folder that both sides see (a shared disk, a synced folder), or a git remote: a URL, "
    "user@host:path, or the path of a bare repository NAME.git";

using SharedFlags = std::shared_ptr<BridgeFlags>;

CLI::App* add_bridge_part(CLI::App& bridge,
                          const SharedFlags& flags,
                          const char* name,
                          const char* says) {
  CLI::App* const command = bridge.add_subcommand(name, says);
  command
      ->add_option("--home", flags->home,
                   "Folder of key, peers and what was done (default: ~/.config/kakeya/bridge)")
      ->type_name("DIR");
  return command;
}

void add_bridge_serve(CLI::App& bridge, const SharedFlags& flags, int& exit_code) {
  CLI::App* const command =
      add_bridge_part(bridge, flags, "serve", "Run what lies in WHERE, if it may run, and answer");
  command->add_option("where", flags->where, kWhere)->required()->type_name("WHERE");
  command->add_option("--presets", flags->presets, "Only these may be asked for (default: all)")
      ->delimiter(',')
      ->type_name("A,B,...");
  command
      ->add_option("--model", flags->models,
                   "A model that jobs may name, by NAME; demo is the demo model")
      ->allow_extra_args(false)
      ->type_name("NAME=DIR");
  command->add_flag("--once", flags->once,
                    "Handle what waits and end; exit code 1 if something was refused");
  command->add_option("--every", flags->every_seconds, "Seconds between two looks (default: 10)")
      ->check(CLI::Range(1, 3600))
      ->type_name("N");
  command->footer(
      "Only jobs signed with a key of the file peers run, each once, and only as presets of this\n"
      "program. Nothing in WHERE changes what may run (docs/bridge.md).\n"
      "Examples:\n"
      "  kakeya bridge serve ~/Shared/checks --presets doctor,niah\n"
      "  kakeya bridge serve git@example.org:me/checks.git --model gemma=models/gemma --once");
  command->callback([flags, &exit_code] {
    const auto clean = serve_bridge(*flags);
    exit_code = !clean ? report(clean.error()) : *clean ? kExitOk : kExitFailedCheck;
  });
}

void add_bridge_request(CLI::App& bridge, const SharedFlags& flags, int& exit_code) {
  CLI::App* const command = add_bridge_part(bridge, flags, "request",
                                            "Ask for a check: sign a job and leave it at WHERE");
  command->add_option("preset", flags->request.preset, "What to run")
      ->required()
      ->type_name("PRESET");
  command->add_option("parameters", flags->request.parameters, "Of the preset")
      ->type_name("NAME=VALUE ...");
  command->add_option("--to", flags->where, kWhere)->required()->type_name("WHERE");
  command
      ->add_option("--server", flags->request.server,
                   "Which machine of the file peers is to run it (default: the only one)")
      ->type_name("NAME");
  command
      ->add_option("--hours", flags->lifetime_hours,
                   "After so many it is not begun any more (default: 24)")
      ->check(CLI::Range(1, 7 * 24))
      ->type_name("N");
  command->footer(describe_presets() +
                  "Examples:\n"
                  "  kakeya bridge request doctor --to ~/Shared/checks\n"
                  "  kakeya bridge request niah length=1024 samples=20 model=gemma --to "
                  "git@example.org:me/checks.git");
  command->callback([flags, &exit_code] {
    const Status asked = request_check(*flags);
    exit_code = asked ? kExitOk : report(asked.error());
  });
}

void add_bridge_fetch(CLI::App& bridge, const SharedFlags& flags, int& exit_code) {
  CLI::App* const command =
      add_bridge_part(bridge, flags, "fetch", "Bring answers, and say whether they pass");
  command->add_option("ids", flags->ids, "Of these jobs (default: all that wait)")
      ->type_name("ID ...");
  command->add_option("--wait", flags->wait_seconds, "So many seconds at most (default: 0)")
      ->check(CLI::Range(0, 7 * 24 * 3600))
      ->type_name("N");
  command->footer(
      "An answer passes that its machine signed, whose check ended with exit code 0, and whose "
      "report keeps\nthe rules of `kakeya eval gate` where it has some. Exit code 1: one fails, or "
      "is not there yet.\n"
      "Examples:\n"
      "  kakeya bridge fetch --wait 600");
  command->callback([flags, &exit_code] {
    const auto passes = fetch_answers(*flags);
    exit_code = !passes ? report(passes.error()) : *passes ? kExitOk : kExitFailedCheck;
  });
}

}  // namespace

void add_bridge_command(CLI::App& app, int& exit_code) {
  CLI::App* const command =
      app.add_subcommand("bridge", "Run named checks on somebody's machine, by signed files");
  command->require_subcommand(1);
  auto flags = std::make_shared<BridgeFlags>();
  CLI::App* const keygen =
      add_bridge_part(*command, flags, "keygen", "Make this side's key; print its public line");
  keygen->add_option("name", flags->name, "What the other side calls it")
      ->required()
      ->type_name("NAME");
  keygen->callback([flags, &exit_code] {
    const Status made = make_bridge_key(*flags);
    exit_code = made ? kExitOk : report(made.error());
  });
  add_bridge_serve(*command, flags, exit_code);
  add_bridge_request(*command, flags, exit_code);
  CLI::App* const status =
      add_bridge_part(*command, flags, "status", "What was asked for, and what came of it");
  status->callback([flags, &exit_code] {
    const Status printed = print_bridge_status(*flags);
    exit_code = printed ? kExitOk : report(printed.error());
  });
  add_bridge_fetch(*command, flags, exit_code);
  command->footer(
      "Each side makes a key and puts the other's public line into its file peers. Then:\n"
      "  kakeya bridge request doctor --to ~/Shared/checks     here\n"
      "  kakeya bridge serve ~/Shared/checks --once            on the machine that is asked\n"
      "  kakeya bridge fetch                                   here\n"
      "docs/bridge.md says how to set both up, and what this protects against.");
}

}  // namespace kakeya::cli
