// The attention sub-layer that the networks share: project, normalise heads, rotate, store, attend,
// project back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backend/backend.h"
#include "model/decoder.h"
#include "model/weight_loader.h"

namespace kakeya {

struct AttentionWeights {
  std::unique_ptr<Matrix> q_proj;  // [H * E, D]
  std::unique_ptr<Matrix> k_proj;  // [K * E, D]; null when the layer reads another layer's cache
  std::unique_ptr<Matrix> v_proj;  // [K * E, D]; null when values are the raw keys
  std::unique_ptr<Matrix> o_proj;  // [D, H * E]
  WeightVector q_norm;             // [E]; empty: heads are not normed
  WeightVector k_norm;             // [E]; likewise
  // Vectors that are added to the products; empty: none.
  WeightVector q_bias;  // [H * E]
  WeightVector k_bias;  // [K * E]
  WeightVector v_bias;  // [K * E]
  WeightVector o_bias;  // [D]
};

// The tensors that a layer's attention has.
struct AttentionTensors {
  bool owns_kv = true;           // else it reads another layer's cache
  bool values_are_keys = false;  // values are the raw keys
  bool head_norms = true;
  bool qkv_bias = false;
  bool o_bias = false;
};

// The properties of attention that differ between the networks and between layers.
struct AttentionShape {
  std::int64_t num_heads = 0;     // H
  std::int64_t num_kv_heads = 0;  // K
  std::int64_t head_dim = 0;      // E
  float scale = 1.0F;             // of the scores: 1 for Gemma 4, 1 / sqrt(E) for Qwen3
  Compute compute = Compute::kF32;
  bool normalise_values = false;  // Gemma 4: RMSNorm without weight
  bool bidirectional = false;     // the rows of one pass see one another (a drafter's block)
  float rms_norm_eps = 1e-6F;
  std::int64_t cache_index = 0;  // where keys and values are stored
  // The inverse frequencies of the pairs that rotate, for keys that are made while attending.
  ConstVector inverse_frequencies = {};
};

// Loads the tensors of `prefix` ("layers.3.self_attn.").
AttentionWeights load_attention(WeightLoader& loader,
                                const std::string& prefix,
                                const AttentionTensors& tensors,
                                Compute compute);

// Fills the batch's reserved cache rows with keys and values of `input` [T, D]. Uses keys and
// values of `a`.
void store_keys_and_values(const AttentionWeights& weights,
                           const AttentionShape& shape,
                           const RopeTable& rope,
                           ConstRows input,
                           const Batch& batch,
                           Executor& executor,
                           Activations& a);

// out [T, D] = attention over `a.normed` [T, D], the rows of the batch.
// Uses queries, keys, values and attended of `a`. Source: networks of sections A.3 (steps 4 to 6)
// and C (steps 3 to 6) of the published Gemma 4 and Qwen3 implementations.
void attend(const AttentionWeights& weights,
            const AttentionShape& shape,
            const RopeTable& rope,
            const Batch& batch,
            Executor& executor,
            Activations& a,
            Rows out);

}  // namespace kakeya
