// The driver of cards over a stand-in for NVIDIA's library (fake_libcuda.cc).
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "backend/cuda/cuda_driver.h"
#include "backend/cuda/fake_libcuda.h"

namespace kakeya::cuda {

inline CardOptions card_options() {
  alignas(64) static constexpr std::uint32_t kImage[] = {fake::kImageMagic, 0};
  return {.device = 0,
          .library = KAKEYA_FAKE_LIBCUDA,
          .image = {std::as_bytes(std::span(kImage)), 12000}};
}

class CudaDriver : public testing::Test {
 protected:
  void SetUp() override {
    void* const library = ::dlopen(KAKEYA_FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    const auto function =
        reinterpret_cast<fake::RecordFunction>(::dlsym(library, fake::kRecordSymbol));
    ASSERT_NE(function, nullptr);
    record_ = function();
    *record_ = {};
    set("");
  }
  // Whatever was asked for was given back, and nothing was asked that a card would refuse.
  void TearDown() override {
    EXPECT_EQ(record_->misuses, 0) << record_->misuse;
    EXPECT_EQ(record_->bytes, 0U);
    EXPECT_EQ(record_->releases, record_->allocations);
    EXPECT_EQ(record_->objects, 0);
  }
  void set(const char* settings) { ::setenv(fake::kSettings, settings, 1); }
  const fake::Record& record() const { return *record_; }

  static std::unique_ptr<Driver> create() {
    auto driver = create_cuda_driver(card_options());
    EXPECT_TRUE(driver.has_value()) << driver.error().message();
    return std::move(driver).value();
  }
  std::string refusal(const char* settings, const CardOptions& options = card_options()) {
    set(settings);
    const auto card = examine_card(options);
    const auto driver = create_cuda_driver(options);
    EXPECT_EQ(card.has_value(), driver.has_value());
    return driver ? "" : driver.error().message();
  }

  fake::Record* record_ = nullptr;
};

}  // namespace kakeya::cuda
