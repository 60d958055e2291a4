// GGUF files that both Kakeya and llama.cpp load and `kakeya convert` does not write: random
// weights of a published shape.
#pragma once

#include <cstdint>
#include <string>

#include "formats/gguf.h"
#include "formats/model_config.h"
#include "kakeya/status.h"

namespace kakeya::peers {

struct RandomModelOptions {
  GgufEncoding matrices = QuantizedFormat::kQ40;
  // The encoding of the embedding, which is the head too.
  GgufEncoding embedding = QuantizedFormat::kQ40;
  std::uint64_t seed = 1;
};

// The encoding of a matrix with rows of `columns` elements, if `wanted` is asked for: blocks as
// gguf_format_of_rows() says. Errors: kInvalidArgument if there is none, or random elements cannot
// be made of it.
Result<GgufEncoding> encoding_for(GgufEncoding wanted, std::int64_t columns);

// Norms and scales are about 1, so that activations stay in range; the router is as random as the
// rest, so that tokens choose different experts. The same options give the same bytes.
// Errors: kUnimplemented for a network other than Gemma 4; as encoding_for and write_gguf.
Status write_random_model(const std::string& path,
                          const ModelConfig& config,
                          const RandomModelOptions& options);

}  // namespace kakeya::peers
