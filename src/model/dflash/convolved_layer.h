// One layer of a DFlash 2 drafter: that of Qwen3, in which attention and the MLP each lie between
// two causal depthwise convolutions over the rows of a block. Coefficients are base kernels plus
// what a projection of the normed rows adds, alike for the channels of a group:
//
//   a = input_layernorm(x)                     the coefficients of both sides come from a
//   x = x + conv_1(attention(conv_0(a)))       the context's keys and values meet no convolution
//   a' = post_attention_layernorm(x)
//   x = x + conv_1'(mlp(conv_0'(a')))
//
// Source: the published z-lab implementation of DFlash 2; docs/speculation.md has the equations.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "formats/drafter_config.h"
#include "model/arena.h"
#include "model/llama/layer.h"
#include "model/weight_loader.h"

namespace kakeya::dflash {

// The two convolutions around a part of a layer: side 0 before it, side 1 behind it.
struct Convolutions {
  WeightVector base_kernel;                   // [2, K, D]
  std::unique_ptr<Matrix> kernel_projection;  // [2 * K * D / g, D]
};

struct ConvolvedLayer {
  Convolutions attention_conv;
  Convolutions mlp_conv;
};

// Loads "layers.LAYER.attention_conv.*" and "layers.LAYER.mlp_conv.*".
ConvolvedLayer load_convolutions(std::int64_t layer, WeightLoader& loader, Compute compute);

// Intermediate rows of the convolutions of a pass.
struct ConvolutionRows {
  Rows own;  // [T, 2 * K * D / g] coefficients of each row
  Rows out;  // [T, D]

  // Takes nothing for a drafter without convolutions.
  static ConvolutionRows layout(Arena& arena, const DrafterConfig& config, std::int64_t max_rows);
  ConvolutionRows with_rows(std::int64_t rows) const;
};

// a.hidden [T, D] = the layer's output for it, the rows of the batch, whose segments are blocks.
void run_convolved_layer(const DrafterConfig& config,
                         const llama::LayerWeights& layer,
                         const ConvolvedLayer& convolutions,
                         const RopeTable& rope,
                         const Batch& batch,
                         Executor& executor,
                         Activations& a,
                         const ConvolutionRows& rows);

}  // namespace kakeya::dflash
