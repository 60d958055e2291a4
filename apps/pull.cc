// `kakeya pull`: brings a model of the Hugging Face Hub to this machine.
#include "cli/hub/pull.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/memory_budget.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/pull_watch.h"
#include "commands.h"

namespace kakeya::cli {
namespace {

struct PullFlags {
  std::string name;
  std::string revision = kMainBranch;
  bool json = false;
};

nlohmann::ordered_json pulled_json(const PulledModel& pulled) {
  nlohmann::ordered_json json = {{"name", pulled.repository},
                                 {"commit", pulled.commit},
                                 {"path", pulled.path},
                                 {"files", nlohmann::ordered_json::array()}};
  for (const PulledFile& file : pulled.files) {
    json["files"].push_back(
        {{"path", file.path}, {"bytes", file.bytes}, {"fetched", file.fetched}});
  }
  return json;
}

int pull(const PullFlags& flags) {
  const auto pulled = pull_shown(flags.name, flags.revision);
  if (!pulled) return report(pulled.error());
  if (flags.json) {
    print_json(pulled_json(*pulled));
    return kExitOk;
  }
  // Names mean the branch main.
  const std::string& call = flags.revision == kMainBranch ? flags.name : pulled->path;
  print("{} is here: kakeya run {} \"...\"\n", flags.name, call);
  return kExitOk;
}

}  // namespace

void add_pull_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<PullFlags>();
  CLI::App* command =
      app.add_subcommand("pull", "Fetch a model from the Hugging Face Hub to this machine");
  command->add_option("name", flags->name, "OWNER/NAME, OWNER/NAME:TYPE or OWNER/NAME:FILE")
      ->required();
  command->add_option("--revision", flags->revision, "A branch, a tag or a commit")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON object: commit, path, files");
  command->footer(
      "Fetches what runs: a GGUF file with all its parts, or weights in safetensors with their\n"
      "configuration, tokenizer and chat template. Of several the largest is taken, and a note\n"
      "names the others; NAME:TYPE or NAME:FILE asks for one. Each file is compared with its size\n"
      "and hash; what is here is not fetched again, and a fetch that was stopped goes on where it\n"
      "ended. The place is the cache of Hugging Face's libraries, which find it, too.\n\n"
      "Environment: HF_TOKEN (else the file HF_TOKEN_PATH or HF_HOME/token) for models whose "
      "terms\n"
      "have to be accepted, HF_HUB_CACHE or HF_HOME for another place, HF_ENDPOINT for a mirror,\n"
      "https_proxy; HF_HUB_OFFLINE=1 refuses.\n\n"
      "Examples:\n"
      "  kakeya pull Qwen/Qwen3-0.6B\n"
      "  kakeya pull unsloth/Qwen3-0.6B-GGUF:Q4_K_M            a file by its type\n"
      "  kakeya pull ggml-org/gemma-3-270m-GGUF:gemma-3-270m-Q8_0.gguf\n"
      "  HF_TOKEN=hf_... kakeya pull google/gemma-3-1b-it      after its terms were accepted\n"
      "  kakeya pull OWNER/NAME --revision v1.0                a tag\n"
      "  kakeya run Qwen/Qwen3-0.6B \"Why is the sky blue?\"     runs it\n"
      "  kakeya serve --pull Qwen/Qwen3-0.6B                   fetches it, if it is not here, "
      "first");
  command->callback([flags, &exit_code] { exit_code = pull(*flags); });
}

}  // namespace kakeya::cli
