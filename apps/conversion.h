// The common part of `kakeya quantize` and `kakeya convert`: their flags, a progress bar that
// Ctrl-C ends cleanly, and what they say at the end.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "cli/machine_memory.h"
#include "cli/terminal.h"
#include "convert/gguf_model.h"
#include "convert/model_folder.h"

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

// Puts the path in place of a name of the source. Errors: those of path_of_model().
Status find_source(ConversionFlags& flags);

// True if the target is a GGUF file by its name.
bool is_gguf_target(const ConversionFlags& flags);

// For a target that is a folder. Errors: kInvalidArgument if --model was given.
Status check_folder_flags(const ConversionFlags& flags);

// The part of a report that a command adds to what every conversion says.
struct ReportPart {
  std::string text = {};
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
};

// One run, from the first byte to the report.
class Conversion {
 public:
  // `label` stands before the bar of the conversion itself, begun by the options.
  Conversion(const ConversionFlags& flags, std::string label);

  FolderOptions folder_options();
  GgufOptions gguf_options();
  MemoryBudget& budget() { return budget_; }
  // Another bar in place of the one there is, drawn by what is returned. That ends with kCancelled
  // after Ctrl-C, saying what has become of the target.
  ProgressCallback begin_stage(std::string label, std::string_view when_interrupted = kNothing);
  // Erases the bar.
  void end_stage() { bar_.reset(); }
  // Says what came out, or what went wrong, and returns the exit code.
  int finish(const Result<ConversionReport>& report, const ReportPart& more = {});

 private:
  static constexpr std::string_view kNothing = "nothing has been written";

  ConversionFlags flags_;
  std::string label_;
  MemoryBudget budget_{available_memory()};
  InterruptGuard interrupt_;
  std::optional<ProgressBar> bar_;
};

}  // namespace kakeya::cli
