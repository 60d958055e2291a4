// The kernels for Apple's GPUs, on MLX's CPU device: what decides whether a GPU is trusted with
// them. That they give the reference's numbers, op_parity_test and model_test say.
#include "backend/mlx/mlx_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "backend/mlx/mlx_space.h"

namespace kakeya::mlx {
namespace {

mx::Stream cpu_stream() {
  return mx::new_thread_unsafe_stream(mx::Device::cpu);
}

TEST(MlxKernels, GiveWhatTheirCompositionsGive) {
  const mx::Stream stream = cpu_stream();
  EXPECT_EQ(compare_operations(*kernel_operations(stream), *composed_operations(stream)), "");
}

// As a GPU might be wrong, or a compiler refuse a text.
class Wrong final : public RowOperations {
 public:
  enum class How : std::uint8_t { kAdds, kRoutes, kAttends, kThrows };

  Wrong(mx::Stream stream, How how)
      : RowOperations(stream), right_(composed_operations(stream)), how_(how) {}

  mx::array rms_norm(const mx::array& x,
                     const std::optional<mx::array>& weight,
                     std::int64_t width,
                     float eps) const override {
    return right_->rms_norm(x, weight, width, eps);
  }
  mx::array rotation(const mx::array& x,
                     const mx::array& cos,
                     const mx::array& sin,
                     std::int64_t half) const override {
    return right_->rotation(x, cos, sin, half);
  }
  mx::array gate(GateActivation activation,
                 const mx::array& gate,
                 const mx::array& other) const override {
    if (how_ == How::kThrows) throw std::runtime_error("no such function: simd_sum");
    return right_->gate(activation, gate, other);
  }
  mx::array weighted_sum(const mx::array& x,
                         const mx::array& factors,
                         std::int64_t width) const override {
    return right_->weighted_sum(x, factors, width);
  }
  mx::array add(const mx::array& a, const mx::array& b, float scale) const override {
    return right_->add(a, b, how_ == How::kAdds ? scale * 1.001F : scale);
  }
  // Each one's neighbour.
  Routes route(const mx::array& logits,
               const mx::array& scales,
               std::int64_t top_k) const override {
    Routes routes = right_->route(logits, scales, top_k);
    if (how_ == How::kRoutes) routes.experts = mx::add(routes.experts, mx::array(1), s_);
    return routes;
  }
  mx::array attention(const AttentionRows& input) const override {
    const mx::array right = RowOperations::attention(input);
    return how_ == How::kAttends ? mx::array(NAN) * right : right;
  }

 private:
  const std::unique_ptr<RowOperations> right_;
  const How how_;
};

TEST(MlxKernels, AreRefusedWhereOneDiffers) {
  const mx::Stream stream = cpu_stream();
  const auto refusal = [&](Wrong::How how) {
    return compare_operations(Wrong(stream, how), *composed_operations(stream));
  };
  EXPECT_TRUE(refusal(Wrong::How::kAdds).starts_with("add differs by "))
      << refusal(Wrong::How::kAdds);
  EXPECT_EQ(refusal(Wrong::How::kRoutes), "route (experts) differs by 1");
  EXPECT_EQ(refusal(Wrong::How::kAttends), "attention differs by nan");
  EXPECT_EQ(refusal(Wrong::How::kThrows), "no such function: simd_sum");
}

// A GPU has no check of them.
TEST(MlxKernels, IndicesOutOfBoundsAreSeen) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // MLX has threads
  const mx::Stream stream = cpu_stream();
  const auto add_more = [&] {
    const mx::array x = mx::zeros({4}, mx::float32, stream);
    mx::eval(run_kernel(Kernel::kScaledAdd, {x, x, mx::array(1.0F)},
                        {{mx::Shape{4}}, {mx::float32}}, {.x = 5}, stream));
  };
  EXPECT_DEATH(add_more(), "kernel scaled_add at \\(4, 0, 0\\): a\\[4\\] of 4");
}

// The names that MLX finds in a text decide what the function is given.
TEST(MlxKernels, TextsNameTheirArrays) {
  for (std::size_t i = 0; i < kNumKernels; ++i) {
    const auto kernel = static_cast<Kernel>(i);
    const std::string source = source_of(kernel);
    const KernelText& text = text_of(kernel);
    for (const std::string& name : text.inputs) {
      EXPECT_NE(source.find(name), std::string::npos) << text.name << ": " << name;
    }
    for (const std::string& name : text.outputs) {
      EXPECT_NE(source.find(name + "["), std::string::npos) << text.name << ": " << name;
    }
  }
}

}  // namespace
}  // namespace kakeya::mlx
