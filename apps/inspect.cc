// `kakeya inspect`: what a model folder or a weight file holds.
#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/output.h"
#include "commands.h"
#include "formats/gguf_checkpoint.h"
#include "inspect_gguf.h"
#include "inspect_report.h"

namespace kakeya::cli {

namespace {

struct InspectFlags {
  std::string path;
  bool json = false;
};

template <typename Inspected>
int print_inspected(const InspectFlags& flags, const Result<Inspected>& inspected) {
  if (!inspected) return report(inspected.error());
  if (flags.json) {
    print_json(to_json(*inspected), -1);
  } else {
    print("{}", to_text(*inspected));
  }
  return kExitOk;
}

int run_inspect(InspectFlags flags) {
  const auto path = path_of_model(flags.path, Purpose::kLookAt);
  if (!path) return report(path.error());
  flags.path = *path;
  if (is_gguf_path(flags.path)) return print_inspected(flags, inspect_gguf(flags.path));
  return print_inspected(flags, inspect(flags.path));
}

}  // namespace

void add_inspect_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand("inspect", "Describe a model folder or a weight file");
  command
      ->add_option("path", flags->path,
                   "Model folder, .safetensors or .gguf file, or a model's name; only headers are "
                   "read")
      ->required()
      ->type_name("PATH");
  command->add_flag("--json", flags->json, "One JSON object");
  command->callback([flags, &exit_code] { exit_code = run_inspect(*flags); });
}

}  // namespace kakeya::cli
