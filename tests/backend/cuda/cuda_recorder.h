// A driver that keeps what it launched, for tests of the backend for cards.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/driver.h"
#include "backend/emulated/emulated_driver.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "model/random_source.h"
#include "model/test_model.h"

namespace kakeya::cuda {

// Runs each launch at once on the emulator, and keeps what it ran.
class Recorder final : public Driver {
 public:
  explicit Recorder(emulated::CountedReads* counted = nullptr)
      : emulated_(
            create_emulated_driver({.seed = 5, .allows_host_memory = true, .counted = counted})
                .value()) {}

  std::string_view name() const override { return emulated_->name(); }
  MemorySpace& memory() override { return emulated_->memory(); }
  bool takes_lists() const override { return false; }
  Result<std::span<std::byte>> staging() override { return emulated_->staging(); }
  void begin_upload(std::span<const std::byte> from, DevicePointer<std::byte> to) override {
    emulated_->begin_upload(from, to);
  }
  Result<std::shared_ptr<std::byte>> pin(std::size_t bytes) override {
    return emulated_->pin(bytes);
  }
  std::uint64_t num_changes() const override { return emulated_->num_changes(); }
  Status launch(const LaunchList& launches) override {
    for (std::size_t i = 0; i < launches.size(); ++i) {
      ran.add(launches.kernel(i), launches.shape(i), launches.parameters(i));
    }
    return emulated_->launch(launches);
  }
  Status synchronize() override { return emulated_->synchronize(); }
  Status await(std::int64_t& told, std::int64_t number) override {
    return emulated_->await(told, number);
  }

  LaunchList ran;

 private:
  std::unique_ptr<Driver> emulated_;
};

inline std::string names_of(const LaunchList& launches) {
  std::string names;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    names += (i == 0 ? "" : " ") +
             std::string(kKernelNames[static_cast<std::size_t>(launches.kernel(i))]);
  }
  return names;
}

// The demo model's shape, so that all rules of fusion apply, with random weights of four bits.
struct RecordedModel {
  // The first `layers` alone, unless that is 0.
  explicit RecordedModel(std::int64_t layers = 0) : config(config_of(layers)) {
    auto driver = std::make_unique<Recorder>();
    recorder = driver.get();
    model = test::TestModel::load(config, source, create_backend_on(std::move(driver), 1),
                                  Compute::kFast);
  }

  static ModelConfig config_of(std::int64_t layers) {
    ModelConfig config = load_model_config(KAKEYA_DEMO_MODEL).value();
    if (layers == 0) return config;
    config.num_hidden_layers = layers;
    config.layer_types.resize(static_cast<std::size_t>(layers));
    return config;
  }

  const ModelConfig config;
  ThreadPool pool{{.num_threads = 1}};
  RandomSource source{expected_tensors(config), 3, pool, QuantizedFormat::kQ40};
  Recorder* recorder = nullptr;  // the model's
  std::unique_ptr<test::TestModel> model;
};

}  // namespace kakeya::cuda
