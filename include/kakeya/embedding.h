// A text as one vector: what the model's last layer says of it, after the final norm.
#pragma once

#include <cstdint>

namespace kakeya {

// Which tokens the vector is of: the last one, which has seen all of the text, or the mean of all.
enum class Pooling : std::uint8_t { kLast, kMean };

struct EmbeddingOptions {
  Pooling pooling = Pooling::kLast;
  // Divides the vector by its Euclidean length; one of zeros stays.
  bool normalize = true;
};

}  // namespace kakeya
