#include "model/dflash/convolved_layer.h"

#include <fmt/format.h>

namespace kakeya::dflash {
namespace {

// The part of the convolutions that is the same for all layers.
struct ConvolutionShape {
  std::int64_t taps;   // K
  std::int64_t group;  // g
  std::int64_t width;  // D
};

Convolutions load(const std::string& prefix, WeightLoader& loader, Compute compute) {
  Convolutions convolutions;
  convolutions.base_kernel = loader.vector(prefix + "base_kernel");
  convolutions.kernel_projection = loader.matrix(prefix + "kernel_projection.weight", compute);
  return convolutions;
}

RowConvolution one_side(const ConvolutionShape& shape,
                        const Convolutions& convolutions,
                        ConstRows own,
                        std::int64_t side) {
  const std::int64_t size = shape.taps * shape.width;
  return {.base = {convolutions.base_kernel.data() + side * size, size},
          .own = own,
          .column = side * size / shape.group,
          .taps = shape.taps,
          .group = shape.group};
}

}  // namespace

ConvolvedLayer load_convolutions(std::int64_t layer, WeightLoader& loader, Compute compute) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  return {.attention_conv = load(prefix + "attention_conv.", loader, compute),
          .mlp_conv = load(prefix + "mlp_conv.", loader, compute)};
}

ConvolutionRows ConvolutionRows::layout(Arena& arena,
                                        const DrafterConfig& config,
                                        std::int64_t max_rows) {
  if (!config.has_selector()) return {};
  const std::int64_t width = config.layers.hidden_size;
  ConvolutionRows rows;
  rows.own = arena.rows(max_rows, 2 * config.conv_kernel_size * (width / config.conv_group_size));
  rows.out = arena.rows(max_rows, width);
  return rows;
}

ConvolutionRows ConvolutionRows::with_rows(std::int64_t rows) const {
  return {.own = first_rows(own, rows), .out = first_rows(out, rows)};
}

void run_convolved_layer(const DrafterConfig& config,
                         const llama::LayerWeights& layer,
                         const ConvolvedLayer& convolutions,
                         const RopeTable& rope,
                         const Batch& batch,
                         Executor& executor,
                         Activations& a,
                         const ConvolutionRows& rows) {
  const ConvolutionShape shape = {.taps = config.conv_kernel_size,
                                  .group = config.conv_group_size,
                                  .width = config.layers.hidden_size};
  // Runs `part` on a.normed between its convolutions and adds what comes of it.
  const auto run = [&](const WeightVector& norm, const Convolutions& around, const auto& part) {
    executor.rms_norm(a.hidden, norm.data(), config.layers.rms_norm_eps, a.normed);
    executor.matmul(a.normed, *around.kernel_projection, rows.own);
    executor.convolve(a.normed, one_side(shape, around, rows.own, 0), rows.out);
    part();
    executor.convolve(a.branch, one_side(shape, around, rows.own, 1), rows.out);
    executor.add(a.hidden, rows.out, 1.0F, a.hidden);
  };
  run(layer.input_layernorm, convolutions.attention_conv, [&] {
    Activations inner = a;
    inner.normed = rows.out;
    attend(layer.self_attn, layer.shape, rope, batch, executor, inner, a.branch);
  });
  run(layer.post_attention_layernorm, convolutions.mlp_conv,
      [&] { mlp(layer.mlp, rows.out, GateActivation::kSilu, executor, a, a.branch); });
}

}  // namespace kakeya::dflash
