// `kakeya calibrate`: what a model's keys and values are like, for calibrated types of the KV
// cache.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "commands.h"
#include "convert/kv_calibration.h"
#include "convert/text_windows.h"
#include "formats/model_config.h"
#include "runtime/model_text.h"

namespace kakeya::cli {
namespace {

// Long enough that a layer's keys meet distances, short enough that texts of many kinds are seen.
constexpr std::int64_t kCalibrationWindow = 1024;
// Variances of a head's elements say little after fewer.
constexpr std::int64_t kLeastCalibrationTokens = 1024;

struct CalibrateFlags {
  ModelFlags model;
  std::vector<std::string> texts;  // empty: the one that comes with the program
  std::string output;              // empty: where the model's statistics are looked for
};

Result<std::vector<std::string>> calibration_texts(const CalibrateFlags& flags) {
  if (!flags.texts.empty()) return flags.texts;
  const std::string name = "calibration.txt";
  const std::string folder = find_shared_folder("eval/data", name);
  if (!folder.empty()) return std::vector<std::string>{folder + "/" + name};
  return error(StatusCode::kNotFound,
               "the calibration text was not found beside the program (eval/data/{} of its "
               "checkout, or share/kakeya/eval/data of its installation); name one: --text FILE",
               name);
}

// The windows of all files, none of which begins in one and ends in another.
Result<std::vector<std::vector<TokenId>>> read_windows(const std::string& model,
                                                       const std::vector<std::string>& files) {
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(model));
  KAKEYA_ASSIGN_OR_RETURN(const ModelText text, ModelText::load(model));
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, text.tokenizer());
  std::optional<TokenId> bos;
  if (text.begins_texts()) bos = config.bos_token_id;
  const std::int64_t window = std::min(kCalibrationWindow, config.max_position_embeddings);
  std::vector<std::vector<TokenId>> windows;
  std::int64_t tokens = 0;
  for (const std::string& file : files) {
    KAKEYA_ASSIGN_OR_RETURN(const std::string content, read_text(file));
    KAKEYA_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                            tokenizer->encode(content, {.parse_special = false}));
    tokens += std::ssize(ids);
    for (auto& cut : cut_into_windows(ids, bos, window)) windows.push_back(std::move(cut));
  }
  if (tokens >= kLeastCalibrationTokens) return windows;
  return invalid_argument("{}: expected texts of {} tokens at least, got {}",
                          fmt::join(files, ", "), kLeastCalibrationTokens, tokens);
}

Status calibrate(const CalibrateFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string model, model_path(flags.model));
  const std::string output = flags.output.empty() ? kv_statistics_path(model) : flags.output;
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<std::string> files, calibration_texts(flags));
  KAKEYA_ASSIGN_OR_RETURN(const auto windows, read_windows(model, files));
  ModelFlags engine = flags.model;
  engine.texts = ModelTexts::kUnread;
  KAKEYA_ASSIGN_OR_RETURN(const EngineOptions options, engine_options(engine));
  InterruptGuard interrupt;
  const auto started = std::chrono::steady_clock::now();
  std::optional<ProgressBar> bar("calibrating");
  KAKEYA_ASSIGN_OR_RETURN(
      KvStatistics statistics,
      measure_kv_statistics(
          options, windows, [&](std::uint64_t done, std::uint64_t total) -> Status {
            bar->update(done, total);
            if (!interrupt.interrupted()) return {};
            return error(StatusCode::kCancelled, "interrupted: nothing has been written");
          }));
  bar.reset();
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(model));
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).filename();
    statistics.made_from += (statistics.made_from.empty() ? "" : ", ") + name;
  }
  KAKEYA_TRY(save_kv_statistics(output, config, statistics));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
  print(
      "{}: statistics of {} layers from {} tokens of {}, in {:.1f} s ({} bytes)\n"
      "Now the KV cache of full layers can be stored in few bits: --kv-full k4v4\n",
      output, statistics.layers.size(), statistics.tokens, statistics.made_from, taken.count(),
      std::filesystem::file_size(output));
  return {};
}

}  // namespace

void add_calibrate_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<CalibrateFlags>();
  CLI::App* command = app.add_subcommand(
      "calibrate", "Learn what a model's keys and values are like, to store them in few bits");
  add_leading_flags(*command, flags->model, true);
  command
      ->add_option("--text", flags->texts,
                   "Texts to learn from, like those that the model will meet; some ten thousand "
                   "tokens of several kinds (default: prose and code that come with the program)")
      ->type_name("FILE");
  command
      ->add_option("-o,--output", flags->output,
                   "The file to write (default: kv-codes.safetensors in the model's folder, or a "
                   "GGUF file's name with .kv-codes.safetensors behind it, where it is found)")
      ->type_name("FILE");
  add_engine_flags(*command, flags->model);
  command->footer(
      "Writes means and variances of each head's keys before rotation, and what their errors "
      "cost:\n"
      "a file of some 0.1 % of the model's size. With it --kv-full k4v4 (k2 to k6 bits of keys, "
      "v2\n"
      "to v6 of values) stores the KV cache of full layers in a fraction of its bytes.\n"
      "Examples:\n"
      "  kakeya calibrate model.gguf\n"
      "  kakeya run model.gguf --kv-full k4v4 -p ...\n"
      "  kakeya eval kl --model model.gguf --kv-full k4v4 --compute f32");
  command->callback([flags, &exit_code] {
    const Status done = calibrate(*flags);
    exit_code = done ? kExitOk : report(done.error());
  });
}

}  // namespace kakeya::cli
