// Which units of the CPU backend tests run, and how: on the machine's own instructions or, where it
// lacks a few of them, as a twin, the unit's source with those instructions in software. Only test
// programs have twins.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace kakeya::test {

enum class UnitRun { kNatively, kByTwin, kNeither };

struct TestUnit {
  std::string name;             // of the unit, as the product lists it
  std::string instruction_set;  // what create_test_backend() calls it; empty for kNeither
  UnitRun run = UnitRun::kNeither;
};

// Every unit of the product, best first. With KAKEYA_TEST_TWINS=1 in the environment twins stand
// for the machine's own instructions, where there are any.
std::vector<TestUnit> test_units();

// "amx_bf16" of "amx_bf16_twin".
std::string unit_name(const std::string& instruction_set);

// The backend mlx with its kernels as C++.
inline constexpr std::string_view kMlxKernels = "mlx/kernels";

// Creates a backend as create_backend() does, which knows neither twins nor that one.
Result<std::unique_ptr<Backend>> create_test_backend(const BackendOptions& options);

}  // namespace kakeya::test
