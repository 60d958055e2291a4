// The "normalizer" of a tokenizer.json: changes to the text before it is cut into words.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace kakeya {

// Every occurrence of `from` becomes `to`.
struct ReplaceStep {
  std::string from;
  std::string to;
};

// Unicode normalisation form C. A run of more than a thousand combining characters is composed in
// parts, which keeps the cost linear; no real text has one.
struct NfcStep {};

using NormalizerStep = std::variant<ReplaceStep, NfcStep>;

class Normalizer {
 public:
  void add(NormalizerStep step);

  // `text` is valid UTF-8, and so is the result.
  std::string apply(std::string_view text) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace kakeya
