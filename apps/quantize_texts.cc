#include "quantize_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/status.h"
#include "cli/internal_engine.h"
#include "convert/text_windows.h"
#include "eval/texts/model_difference.h"
#include "formats/drafter_config.h"
#include "formats/model_config.h"
#include "runtime/model_text.h"

namespace kakeya::cli {

namespace {

// The reader that turns files into windows of tokens.
struct Reader {
  ModelText text;
  std::optional<TokenId> bos;
  std::int64_t window = 0;

  // Errors: kInvalidArgument for fewer than `least` tokens.
  Result<std::vector<TokenId>> read(const std::string& file, std::size_t least) const {
    KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, text.tokenizer());
    KAKEYA_ASSIGN_OR_RETURN(const std::string content, read_text(file));
    KAKEYA_ASSIGN_OR_RETURN(std::vector<TokenId> ids,
                            tokenizer->encode(content, {.parse_special = false}));
    if (ids.size() < least) {
      return invalid_argument("{}: expected a text of {} tokens at least, got {}", file, least,
                              ids.size());
    }
    return ids;
  }

  TextPart part(const std::string& file, std::string what, std::span<const TokenId> ids) const {
    return {.file = file,
            .what = std::move(what),
            .tokens = std::ssize(ids),
            .windows = cut_into_windows(ids, bos, window)};
  }
};

Result<Reader> open_reader(const std::string& source) {
  if (is_drafter_folder(source)) {
    return invalid_argument(
        "{}: expected a model to run a text through, got a drafter (drafters are quantised without "
        "--calibration and --report)",
        source);
  }
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(source));
  Reader reader;
  KAKEYA_ASSIGN_OR_RETURN(reader.text, ModelText::load(source));
  if (reader.text.begins_texts()) reader.bos = config.bos_token_id;
  reader.window = std::min(kTextWindow, config.max_position_embeddings);
  return reader;
}

}  // namespace

void add_text_flags(CLI::App& command, TextFlags& flags) {
  command
      .add_option("--calibration", flags.calibration,
                  "Weigh errors by what this text makes of the model: columns that meet large "
                  "activations are kept more exact. Some ten thousand tokens of what the model "
                  "will be used for; also reports, on the last quarter of it")
      ->type_name("TEXT_FILE");
  command
      .add_option("--report", flags.report,
                  "Run this text through SOURCE and TARGET and say how far their outputs are apart")
      ->type_name("TEXT_FILE");
}

Result<QuantizeTexts> read_texts(const std::string& source, const TextFlags& flags) {
  QuantizeTexts texts;
  if (!flags.any()) return texts;
  KAKEYA_ASSIGN_OR_RETURN(const Reader reader, open_reader(source));
  if (!flags.report.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(const auto ids, reader.read(flags.report, kLeastTokens));
    texts.report = reader.part(flags.report, "", ids);
  }
  if (flags.calibration.empty()) return texts;
  const std::size_t least = flags.report.empty() ? 2 * kLeastTokens : kLeastTokens;
  KAKEYA_ASSIGN_OR_RETURN(const auto ids, reader.read(flags.calibration, least));
  std::span<const TokenId> rest(ids);
  if (flags.report.empty()) {
    const std::size_t held_out = std::max(ids.size() / 4, kLeastTokens);
    texts.report =
        reader.part(flags.calibration, " (its end, which calibrated nothing)", rest.last(held_out));
    rest = rest.first(rest.size() - held_out);
  }
  texts.calibration = reader.part(flags.calibration, "", rest);
  return texts;
}

Result<eval::DistributionStatistics> measure_outputs(const ConversionFlags& paths,
                                                     const TextPart& text,
                                                     Conversion& conversion) {
  ModelFlags model;
  model.threads = paths.threads;
  model.model = paths.source;
  conversion.end_stage();  // loading has a bar of its own
  KAKEYA_ASSIGN_OR_RETURN(const auto source, open_internal_engine(model));
  model.model = paths.target;
  KAKEYA_ASSIGN_OR_RETURN(const auto target, open_internal_engine(model));
  return eval::compare_models(
      *source, *target, text.windows,
      conversion.begin_stage("comparing", "the comparison is not complete"));
}

ReportPart describe_outputs(const QuantizeTexts& texts,
                            const eval::DistributionStatistics& statistics) {
  const TextPart& report = texts.report;
  ReportPart part;
  part.text = fmt::format(
      "outputs at {} tokens of {}{}: divergence {:.4f} nats, same likeliest token {:.1f} %, "
      "perplexity {:.3f} -> {:.3f}\n",
      statistics.positions(), report.file, report.what, statistics.mean_divergence(),
      100.0 * statistics.top_agreement(), statistics.reference_perplexity(),
      statistics.perplexity());
  if (texts.calibration.tokens > 0) {
    part.json["calibration"] = {{"file", texts.calibration.file},
                                {"tokens", texts.calibration.tokens}};
  }
  part.json["report"] = {{"file", report.file},
                         {"tokens", statistics.positions()},
                         {"mean_divergence", statistics.mean_divergence()},
                         {"top_agreement", statistics.top_agreement()},
                         {"perplexity_before", statistics.reference_perplexity()},
                         {"perplexity_after", statistics.perplexity()}};
  return part;
}

}  // namespace kakeya::cli
