// One layer of Qwen3: attention and a SwiGLU feed-forward, each behind a norm. The DFlash drafter
// is made of the same layers. Equations: transformers, Qwen3DecoderLayer.
#pragma once

#include <cstdint>
#include <memory>

#include "model/attention.h"
#include "model/decoder.h"
#include "model/weight_loader.h"

namespace kakeya::qwen3 {

struct LayerWeights {
  AttentionWeights self_attn;
  AttentionShape shape;
  WeightVector input_layernorm;           // [D]
  WeightVector post_attention_layernorm;  // [D]
  std::unique_ptr<Matrix> gate_proj;      // [F, D]
  std::unique_ptr<Matrix> up_proj;        // [F, D]
  std::unique_ptr<Matrix> down_proj;      // [D, F]
};

// Loads "layers.LAYER.*"; keys and values go to layer `cache_index` of the cache.
LayerWeights load_layer(const ModelConfig& config,
                        std::int64_t layer,
                        std::int64_t cache_index,
                        WeightLoader& loader,
                        Compute compute);

// a.hidden [T, D] = the layer's output for it, the rows of the batch; with `shape` in place of the
// layer's own.
void decoder_layer(const LayerWeights& layer,
                   const RopeTable& rope,
                   const Batch& batch,
                   Executor& executor,
                   Activations& a);
void decoder_layer(const LayerWeights& layer,
                   const AttentionShape& shape,
                   const RopeTable& rope,
                   const Batch& batch,
                   Executor& executor,
                   Activations& a);

}  // namespace kakeya::qwen3
