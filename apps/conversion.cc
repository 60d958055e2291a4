#include "conversion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/memory_budget.h"
#include "base/status.h"
#include "cli/model_path.h"
#include "cli/output.h"
#include "formats/gguf_checkpoint.h"

namespace kakeya::cli {

namespace {

double bits_per_weight(const ConversionReport& report) {
  return 8.0 * static_cast<double>(report.bytes_after) / static_cast<double>(report.parameters);
}

std::string to_text(const std::string& target, const ConversionReport& report) {
  std::string text =
      fmt::format("{}: {} -> {}, {:.2f} bits a weight; {} of {} tensors quantised\n", target,
                  format_bytes(report.bytes_before), format_bytes(report.bytes_after),
                  bits_per_weight(report), report.quantized, report.tensors);
  if (!report.left_out.empty()) {
    text += fmt::format("not taken along: {}\n", fmt::join(report.left_out, ", "));
  }
  return text;
}

nlohmann::ordered_json to_json(const std::string& target, const ConversionReport& report) {
  return {{"target", target},
          {"parameters", report.parameters},
          {"tensors", report.tensors},
          {"quantized_tensors", report.quantized},
          {"bytes_before", report.bytes_before},
          {"bytes_after", report.bytes_after},
          {"bits_per_weight", bits_per_weight(report)},
          {"buffer_bytes", report.buffer_bytes},
          {"not_taken_along", report.left_out}};
}

}  // namespace

void add_conversion_flags(CLI::App& command, ConversionFlags& flags) {
  command.add_option("source", flags.source, "Folder, GGUF file or name of a model or a drafter")
      ->required()
      ->type_name("SOURCE");
  command.add_option("target", flags.target, "Folder to make, or FILE.gguf")
      ->required()
      ->type_name("TARGET");
  command
      .add_option("--model", flags.model,
                  "Of a drafter's folder that becomes a .gguf file: the model that it drafts for, "
                  "whose tokenizer the file gets")
      ->type_name("MODEL");
  command.add_flag("--force", flags.force, "Replace a model that is at TARGET");
  command.add_option("-t,--threads", flags.threads, "Threads (default: one for each CPU)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  command.add_flag("--json", flags.json, "One JSON object");
}

Status find_source(ConversionFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(flags.source, path_of_model(flags.source, Purpose::kLookAt));
  return {};
}

bool is_gguf_target(const ConversionFlags& flags) {
  return has_gguf_ending(flags.target);
}

Status check_folder_flags(const ConversionFlags& flags) {
  if (flags.model.empty()) return {};
  return invalid_argument("--model is for a drafter that becomes a .gguf file");
}

Conversion::Conversion(const ConversionFlags& flags, std::string label)
    : flags_(flags), label_(std::move(label)) {}

ProgressCallback Conversion::begin_stage(std::string label, std::string_view when_interrupted) {
  bar_.emplace(std::move(label));
  return [this, when_interrupted](std::uint64_t done, std::uint64_t total) -> Status {
    if (interrupt_.interrupted()) {
      return error(StatusCode::kCancelled, "interrupted; {}", when_interrupted);
    }
    bar_->update(done, total);
    return {};
  };
}

FolderOptions Conversion::folder_options() {
  FolderOptions options = {.replace = flags_.force, .threads = flags_.threads};
  options.writer.progress = begin_stage(label_);
  return options;
}

GgufOptions Conversion::gguf_options() {
  return {.replace = flags_.force,
          .threads = flags_.threads,
          .drafter_target = flags_.model,
          .progress = begin_stage(label_)};
}

int Conversion::finish(const Result<ConversionReport>& report, const ReportPart& more) {
  bar_.reset();
  if (!report) return cli::report(report.error());
  if (flags_.json) {
    nlohmann::ordered_json json = to_json(flags_.target, *report);
    json.update(more.json);
    print_json(json, -1);
  } else {
    print("{}{}", to_text(flags_.target, *report), more.text);
  }
  return kExitOk;
}

}  // namespace kakeya::cli
