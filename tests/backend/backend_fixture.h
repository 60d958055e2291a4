// Helpers of the backend tests: every backend that this machine runs, natively or by its twin,
// random tensors, and a backend together with its budget and executor.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/emulated/emulated_driver.h"
#include "backend/host_rows.h"
#include "backend/mlx/mlx_backend.h"
#include "twin/test_units.h"

namespace kakeya {

struct Configuration {
  // Empty: the reference; "mlx", "mlx_kernels", "cuda_emulated": those backends.
  std::string instruction_set;
  int threads = 1;
};

// The kernels for NVIDIA cards, of which each number of threads stands for an order in which they
// run.
inline const std::string kCudaEmulated = "cuda_emulated";

inline bool is_mlx(const std::string& name) {
  return name.starts_with("mlx");
}

// Kernels whose threads take turns: they are slow.
inline bool is_emulated(const std::string& name) {
  return name == kCudaEmulated || name == "mlx_kernels";
}

inline std::string configuration_name(const Configuration& configuration) {
  if (configuration.instruction_set.empty()) return "ref";
  const std::string& set = configuration.instruction_set;
  if (is_mlx(set) || set == kCudaEmulated) return set;
  return set + "_threads" + std::to_string(configuration.threads);
}

// Every unit that this machine runs, with each of the thread counts.
inline std::vector<Configuration> cpu_configurations(const std::vector<int>& thread_counts) {
  std::vector<Configuration> configurations;
  for (const test::TestUnit& unit : test::test_units()) {
    if (unit.run == test::UnitRun::kNeither) continue;
    for (const int threads : thread_counts)
      configurations.push_back({unit.instruction_set, threads});
  }
  return configurations;
}

// The backend mlx, if it is in the build: as it is on a CPU, and with what a GPU runs.
inline std::vector<Configuration> mlx_configurations() {
  if (!mlx::missing().empty()) return {};
  return {{"mlx", 1}, {"mlx_kernels", 1}};
}

// All of them, and the emulated kernels.
inline std::vector<Configuration> fast_configurations(const std::vector<int>& thread_counts) {
  std::vector<Configuration> configurations = cpu_configurations(thread_counts);
  for (const Configuration& configuration : mlx_configurations()) {
    configurations.push_back(configuration);
  }
  configurations.push_back({kCudaEmulated, 1});
  return configurations;
}

// The mode that `compute` comes to: mlx computes in f32 whatever it is told.
inline Compute computed(const Configuration& configuration, Compute compute) {
  return is_mlx(configuration.instruction_set) ? Compute::kF32 : compute;
}

// Those with two threads, and the reference.
inline std::vector<Configuration> all_configurations() {
  std::vector<Configuration> all = fast_configurations({2});
  all.emplace_back();
  return all;
}

inline ExecutorPlan roomy_plan() {
  ExecutorPlan plan;
  plan.max_rows = 80;
  plan.max_sequences = 8;
  plan.max_matmul_width = 3000;
  plan.max_query_width = 4096;
  plan.max_head_dim = 512;
  plan.max_coded_head_dim = 512;
  plan.top_k_experts = 32;
  plan.num_experts = 32;
  plan.hidden_size = 320;
  plan.moe_intermediate_size = 128;
  return plan;
}

inline std::unique_ptr<Backend> create_configured_backend(const Configuration& configuration) {
  const std::string& set = configuration.instruction_set;
  if (set == kCudaEmulated) {
    return cuda::create_emulated_backend({.seed = static_cast<std::uint64_t>(configuration.threads),
                                          .allows_host_memory = true})
        .value();
  }
  BackendOptions options;
  options.name = set.empty()            ? "ref"
                 : set == "mlx"         ? "mlx/cpu"
                 : set == "mlx_kernels" ? std::string(test::kMlxKernels)
                                        : "cpu/" + set;
  options.threads.num_threads = configuration.threads;
  return test::create_test_backend(options).value();
}

struct Machine {
  explicit Machine(const Configuration& configuration, const ExecutorPlan& plan = roomy_plan())
      : most_rows(plan.max_rows) {
    backend = create_configured_backend(configuration);
    executor = backend->create_executor(plan, budget).value();
  }

  // One sequence of one layer, whose rows start at `first`, in as many passes as it takes.
  void store(ConstRows keys, ConstRows values, Position first, const KvRows& kv) {
    const KvLayer layer{.rows = kv};
    for (std::int64_t done = 0; done < values.count; done += most_rows) {
      const std::int64_t count = std::min(most_rows, values.count - done);
      const auto batch = BatchBuilder::one_of_rows(count, first + done, {&layer, 1});
      executor->begin(batch.batch());
      const ConstRows own_keys =
          keys.count == 0 ? keys : ConstRows{keys.data + done * keys.width, count, keys.width};
      executor->store_kv(own_keys, {values.data + done * values.width, count, values.width}, 0);
    }
  }
  void attend(const AttentionInput& input, Rows out) {
    const auto batch =
        BatchBuilder::one_of_rows(input.queries.count, input.first_position, {&input.layer, 1});
    executor->begin(batch.batch());
    executor->attention(input.queries, input.settings, 0, out);
  }
  void make_rope_table(Position first,
                       std::int64_t count,
                       std::span<const float> inverse_frequencies,
                       RopeTable table) {
    const auto batch = BatchBuilder::one_of_rows(count, first, {});
    executor->begin(batch.batch());
    executor->make_rope_table(device_vector(inverse_frequencies), table);
  }
  void embed(const Matrix& table, std::span<const TokenId> ids, float scale, Rows out) {
    const auto batch = BatchBuilder::one(ids, 0, {}, 0);
    executor->begin(batch.batch());
    executor->embed(table, scale, out);
  }

  const std::int64_t most_rows;
  MemoryBudget budget;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executor> executor;
};

// Uniform in [-scale, scale). Not the library's distribution, which takes a logarithm for each
// number: under sanitizers half of a test's time.
inline std::vector<float> random_floats(std::size_t count, unsigned seed, float scale = 1.0F) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = scale * (static_cast<float>(generator() >> 8U) * 0x1p-23F - 1.0F);
  }
  return values;
}

// Truncates to half precision; the test values are far from its limits.
inline std::uint16_t to_half_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t exponent = (bits >> 23) & 0xffU;
  if (exponent < 113) return static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | ((exponent - 112) << 10) |
                                    ((bits >> 13) & 0x3ffU));
}

// A tensor that owns its memory, one byte off alignment as a checkpoint's may be.
struct Tensor {
  Tensor(Shape shape, DType dtype, const std::vector<float>& values)
      : bytes(values.size() * dtype_bytes(dtype) + 1) {
    std::byte* to = bytes.data() + 1;
    for (const float value : values) {
      if (dtype == DType::kF32) {
        std::memcpy(to, &value, 4);
      } else {
        const std::uint16_t half =
            dtype == DType::kBF16 ? to_bfloat16(value).bits : to_half_bits(value);
        std::memcpy(to, &half, 2);
      }
      to += dtype_bytes(dtype);
    }
    view = {bytes.data() + 1, std::move(shape), dtype, "test"};
  }

  std::vector<std::byte> bytes;
  TensorView view;
};

inline Tensor random_tensor(Shape shape, DType dtype, unsigned seed, float scale = 1.0F) {
  const auto count = static_cast<std::size_t>(num_elements(shape));
  return Tensor(std::move(shape), dtype, random_floats(count, seed, scale));
}

inline ConstRows rows_of(const std::vector<float>& values, std::int64_t width) {
  return {device(values.data()), static_cast<std::int64_t>(values.size()) / width, width};
}
inline Rows rows_of(std::vector<float>& values, std::int64_t width) {
  return {device(values.data()), static_cast<std::int64_t>(values.size()) / width, width};
}

}  // namespace kakeya
