// The texts of `kakeya quantize`: what it weighs columns with, and what it measures the result on.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conversion.h"
#include "eval/texts/distribution_statistics.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya::cli {

struct TextFlags {
  std::string calibration;  // files; empty: none
  std::string report;

  bool any() const { return !calibration.empty() || !report.empty(); }
};

// Fewer tokens than this say little, of columns and of outputs.
inline constexpr std::size_t kLeastTokens = 256;

// Adds --calibration and --report.
void add_text_flags(CLI::App& command, TextFlags& flags);

// Tokens of a file, or of a part of one, in windows (calibrate/text_windows.h).
struct TextPart {
  std::string file;
  std::string what;  // which part of it, for people: " (its last quarter)", or empty
  std::int64_t tokens = 0;
  std::vector<std::vector<TokenId>> windows = {};  // empty: there is no text
};

struct QuantizeTexts {
  TextPart calibration;
  TextPart report;
};

// Reads the files and cuts them up. Without a text of its own the report has the last quarter of
// the calibration's, of kLeastTokens tokens at least. Errors: kInvalidArgument for a source without
// a text of its own to be read (a drafter) and for texts of too few tokens, with what is expected;
// kNotFound; of the tokenizer.
Result<QuantizeTexts> read_texts(const std::string& source, const TextFlags& flags);

// Loads source and target as `kakeya run` would and compares what they say to the text. Errors: of
// loading and running.
Result<eval::DistributionStatistics> measure_outputs(const ConversionFlags& paths,
                                                     const TextPart& text,
                                                     Conversion& conversion);

// Describes the results of both texts: a line for people, and fields of the JSON.
ReportPart describe_outputs(const QuantizeTexts& texts,
                            const eval::DistributionStatistics& statistics);

}  // namespace kakeya::cli
