// One layer of Llama and of the networks like it (Mistral, Qwen2, Qwen3): attention and a SwiGLU
// feed-forward or experts in its place, each behind a norm. The DFlash drafter is made of the
// layers of Qwen3. Equations: transformers, LlamaDecoderLayer, Qwen3DecoderLayer,
// Qwen3MoeDecoderLayer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/attention.h"
#include "model/decoder.h"
#include "model/mlp.h"
#include "model/weight_loader.h"

namespace kakeya::llama {

// The experts of a layer that has no dense MLP.
struct MoeWeights {
  RoutedExperts experts;
  WeightVector per_expert_scale;  // [X] ones
};

struct LayerWeights {
  AttentionWeights self_attn;
  AttentionShape shape;
  WeightVector input_layernorm;           // [D]
  WeightVector post_attention_layernorm;  // [D]
  MlpWeights mlp;                         // empty where there are experts
  MoeWeights moe;                         // empty where there are none
};

// Loads "layers.LAYER.*"; keys and values go to layer `cache_index` of the cache.
LayerWeights load_layer(const ModelConfig& config,
                        std::int64_t layer,
                        std::int64_t cache_index,
                        WeightLoader& loader,
                        Compute compute);

// a.hidden [T, D] = the layer's output for it, the rows of the batch.
void decoder_layer(const LayerWeights& layer,
                   const RopeTable& rope,
                   const Batch& batch,
                   Executor& executor,
                   Activations& a);

}  // namespace kakeya::llama
