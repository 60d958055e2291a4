// What `kakeya quantize` and `kakeya convert` share: their flags, a progress bar that Ctrl-C ends
// cleanly, and what they say at the end.
#pragma once

#include <optional>
#include <string>

#include "command.h"
#include "convert/gguf_model.h"
#include "convert/model_folder.h"
#include "terminal.h"

namespace kakeya::cli {

struct ConversionFlags {
  std::string source;
  std::string target;
  std::string model;  // of a drafter that becomes a GGUF file; empty: none
  bool force = false;
  bool json = false;
  int threads = 0;
};

// Adds SOURCE, TARGET, --model, --force, --threads and --json.
void add_conversion_flags(CLI::App& command, ConversionFlags& flags);

// Whether the target is a GGUF file by its name.
bool is_gguf_target(const ConversionFlags& flags);

// For a target that is a folder. Errors: kInvalidArgument if --model was given.
Status check_folder_flags(const ConversionFlags& flags);

// One run, from the first byte to the report.
class Conversion {
 public:
  // `label` stands before the bar.
  Conversion(const ConversionFlags& flags, std::string label);

  FolderOptions folder_options();
  GgufOptions gguf_options();
  MemoryBudget& budget() { return budget_; }
  // Says what came out, or what went wrong, and returns the exit code.
  int finish(const Result<ConversionReport>& report);

 private:
  // Draws the bar. Errors: kCancelled after Ctrl-C.
  Status progress(std::uint64_t done, std::uint64_t total);

  ConversionFlags flags_;
  MemoryBudget budget_;
  InterruptGuard interrupt_;
  std::optional<ProgressBar> bar_;
};

}  // namespace kakeya::cli
