// Builds with KAKEYA_COMMANDS=answers, as `make demo` makes first.
#include "cli/command.h"
#include "cli/output.h"
#include "commands.h"

namespace kakeya::cli {

void add_workshop_commands(CLI::App& app, int& exit_code) {
  for (const char* const name :
       {"logits", "doctor", "bench", "eval", "bridge", "convert", "quantize", "calibrate"}) {
    CLI::App* const command = app.add_subcommand(name, "Not in this build: `make build` adds it");
    command->allow_extras();
    command->set_help_flag();  // which would say that it is there
    command->callback([name, &exit_code] {
      print_error("kakeya: {} is not in this build: `make build` adds it\n", name);
      exit_code = kExitBadInput;
    });
  }
}

}  // namespace kakeya::cli
