// Rows of texts that are kept in memory, for training by gradient: what a projection is given and
// what it is to make of that.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "formats/projection_config.h"
#include "kakeya/status.h"
#include "kakeya/types.h"
#include "row_recorder.h"

namespace kakeya::train {

// The captured rows of one document: T rows, one a token.
struct CapturedDocument {
  std::int64_t count = 0;             // T
  std::vector<float> key_features;    // [T, F]
  std::vector<float> value_features;  // [T, F]; empty: those of keys
  // By the layers that codes are made for, in order: what k_proj and v_proj gave, [T, K * E].
  std::vector<std::vector<float>> keys;
  std::vector<std::vector<float>> values;  // each empty where values are keys
  // Where the plan has attention:
  std::vector<std::vector<float>> queries = {};  // [T, H * E], normed and turned
  std::vector<std::vector<float>> outputs = {};  // [T, D], what o_proj gave

  std::uint64_t bytes() const;
};

// The plan of what is captured, and of its shapes.
struct CapturePlan {
  struct Layer {
    std::int64_t layer = 0;        // of the target
    std::int64_t cache_index = 0;  // among the layers that have rows of their own
    std::int64_t num_kv_heads = 0;
    std::int64_t head_dim = 0;
    bool values_are_keys = false;
    std::int64_t window = 0;  // a query sees 0 <= p_q - p_k < window; 0: all p_k <= p_q

    std::int64_t width() const { return num_kv_heads * head_dim; }
  };
  std::int64_t num_features = 0;  // F
  bool features_are_shared = false;
  bool has_attention = false;
  std::vector<Layer> layers;
};

// Makes the plan of these layers, which have rows of their own.
CapturePlan make_capture_plan(const ModelConfig& target,
                              const ProjectionConfig& projection,
                              std::span<const std::int64_t> layers);

// Which documents are captured: drawn at random, and taken while they have no more than `most_rows`
// tokens together. A pure function of its arguments.
std::vector<bool> choose_documents(std::span<const std::vector<TokenId>> documents,
                                   std::int64_t most_rows,
                                   std::uint64_t seed);

// The rows of one document as recorded. They are those of all layers of the cache.
CapturedDocument capture(const CapturePlan& plan, const RecordedRows& rows);

// The part of a plan's layer that turns raw keys and values into a part of its output.
struct OutputPart {
  AttentionPart attention;
  std::vector<float> o_proj;  // [D, H * E]
};

// Reads the parts of the plan's layers. `rows`: recorded with attention. Errors: of reading the
// model's o_proj.
Result<std::vector<OutputPart>> read_attention_parts(const CapturePlan& plan,
                                                     const std::string& model_dir,
                                                     const ModelConfig& target,
                                                     const RecordedRows& rows);

std::int64_t count_rows(std::span<const CapturedDocument> documents);
std::uint64_t count_bytes(std::span<const CapturedDocument> documents);

}  // namespace kakeya::train
