#include "convert/model_folder.h"

#include <algorithm>
#include <utility>

#include "base/atomic_file.h"
#include "base/atomic_folder.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "convert/companion_files.h"
#include "convert/gguf_companions.h"

namespace kakeya {

namespace {

Status write_text(const std::string& path, const std::string& text) {
  KAKEYA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, FileAccess::kUmask));
  KAKEYA_TRY(file.write_at(0, std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace

ConversionReport report_of(const SourceModel& model, std::span<const OutputTensor> tensors) {
  ConversionReport report = {.parameters = model.parameters(),
                             .tensors = std::ssize(tensors),
                             .bytes_before = model.stored_bytes()};
  for (const OutputTensor& tensor : tensors) {
    report.bytes_after += output_bytes(tensor);
    if (!std::holds_alternative<DType>(tensor.encoding)) ++report.quantized;
  }
  return report;
}

Result<ConversionReport> write_model_folder(const SourceModel& model,
                                            std::span<const OutputTensor> tensors,
                                            const std::string& config_json,
                                            const std::string& target,
                                            const FolderOptions& options,
                                            MemoryBudget& budget) {
  ConversionReport report = report_of(model, tensors);
  CompanionFiles companions = find_companion_files(model.path);
  KAKEYA_TRY(check_target_folder(model.path, target, options.replace,
                                 report.bytes_after + companions.copied_bytes));
  KAKEYA_ASSIGN_OR_RETURN(
      AtomicFolder folder,
      AtomicFolder::create(target, options.replace ? AtomicFolder::Existing::kReplace
                                                   : AtomicFolder::Existing::kRefuse));
  KAKEYA_TRY(copy_companion_files(companions, model.path, folder.path()));
  KAKEYA_TRY(write_text(folder.path() + "/config.json", config_json));
  if (model.gguf && !model.drafter) {
    KAKEYA_ASSIGN_OR_RETURN(const auto texts, gguf_companion_files(*model.gguf, model.config));
    if (!texts.left_out.empty()) companions.left_out.push_back(texts.left_out);
    for (const TextFile& file : texts.files) {
      KAKEYA_TRY(write_text(folder.path() + "/" + file.name, file.text));
    }
  }
  WriterOptions writer = options.writer;
  writer.progress = [&](std::uint64_t done, std::uint64_t total) -> Status {
    report.buffer_bytes = std::max(report.buffer_bytes, budget.footprint().total_reserved());
    return options.writer.progress ? options.writer.progress(done, total) : Status();
  };
  ThreadPool pool({.num_threads = options.threads, .pin = false});
  KAKEYA_TRY(write_checkpoint(folder.path(), tensors, writer, budget, pool));
  KAKEYA_TRY(folder.commit());
  report.left_out = std::move(companions.left_out);
  return report;
}

}  // namespace kakeya
