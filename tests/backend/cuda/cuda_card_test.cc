// Finding a card and opening it, or saying why that cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "backend/cuda/cuda_driver.h"
#include "backend/cuda/cuda_driver_fixture.h"

namespace kakeya::cuda {
namespace {

using testing::StartsWith;

TEST_F(CudaDriver, SaysInOneLineWhyThereIsNoCard) {
  CardOptions options = card_options();
  options.library = "libcuda-of-nobody.so.1";
  EXPECT_THAT(refusal("", options),
              StartsWith("there is no NVIDIA driver here: libcuda-of-nobody.so.1: "));
  options = card_options();
  options.image = {};
  EXPECT_EQ(refusal("", options), "this build was made without nvcc and has no code for cards");
  options = card_options();
  options.device = 2;
  EXPECT_EQ(refusal("devices=2", options),
            "expected a card with number 2, but the NVIDIA driver shows 2, counted from 0");
  EXPECT_EQ(refusal("devices=0"),
            "the NVIDIA driver does not start: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is "
            "detected)");
  EXPECT_EQ(refusal("driver=11040"),
            "the NVIDIA driver is too old: it knows CUDA 11.4, expected 12.0 or later");
  EXPECT_EQ(refusal("capability=75"),
            "card 0, Stand-in, has compute capability 7.5, expected 8.0 or later");
  const std::uint64_t no_image[] = {0};
  options = card_options();
  options.image.bytes = std::as_bytes(std::span(no_image));
  EXPECT_EQ(refusal("", options),
            "cuda:0 does not load the kernels: CUDA_ERROR_INVALID_IMAGE (device kernel image is "
            "invalid)");
  EXPECT_EQ(refusal(""), "");
}

TEST_F(CudaDriver, IsNoDriverWithoutItsFunctions) {
  CardOptions options = card_options();
  options.library = "libm.so.6";
  EXPECT_EQ(refusal("", options),
            "libm.so.6 has no function cuInit: it is too old, or no driver of NVIDIA's");
}

TEST_F(CudaDriver, DescribesTheCard) {
  set("capability=86 memory=1000000");
  const Card card = examine_card(card_options()).value();
  EXPECT_EQ(card.name, "Stand-in");
  EXPECT_EQ(card.capability_major, 8);
  EXPECT_EQ(card.capability_minor, 6);
  EXPECT_EQ(card.memory_bytes, 1000000U);
  EXPECT_EQ(card.free_bytes, 1000000U);
}

}  // namespace
}  // namespace kakeya::cuda
