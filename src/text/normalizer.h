// The "normalizer" of a tokenizer.json: changes to the text before it is cut into words.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kakeya/status.h"

namespace kakeya {

// Every occurrence of `from` becomes `to`.
struct ReplaceStep {
  std::string from;
  std::string to;
};

// A text that is not empty gets `text` in front.
struct PrependStep {
  std::string text;
};

// Unicode normalisation form C. A run of more than a thousand combining characters is composed in
// parts, which keeps the cost linear; no real text has one.
struct NfcStep {};

using NormalizerStep = std::variant<ReplaceStep, PrependStep, NfcStep>;

class Normalizer {
 public:
  void add(NormalizerStep step);

  // Steps may multiply a text, thirty of them by a billion. This is more than any text needs.
  static constexpr std::size_t kMostGrowth = 16;
  static constexpr std::size_t kMostGrowthBytes = 4096;

  // `text` is valid UTF-8, and so is the result.
  // Errors: kDataLoss if a step would give more than kMostGrowth times the text and
  // kMostGrowthBytes.
  Result<std::string> apply(std::string_view text) const;

  // By what factor a text may at most become shorter; 0: there is no such factor.
  std::size_t most_shrink() const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace kakeya
