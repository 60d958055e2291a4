#include "twin/test_units.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string_view>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels.h"
#include "backend/mlx/mlx_backend.h"

namespace kakeya::cpu {
#if defined(KAKEYA_HAS_TWINS)
const Kernels& amx_bf16_twin_kernels();
const Kernels& avx2_vnni_twin_kernels();
#endif
}  // namespace kakeya::cpu

namespace kakeya::test {
namespace {

struct Twin {
  std::string_view unit;
  std::string_view needs;            // the unit that has all instructions which stay
  std::string_view instruction_set;  // the twin's
  cpu::Kernels kernels;
};

cpu::Kernels renamed(cpu::Kernels kernels, std::string_view name) {
  kernels.name = name;
  return kernels;
}

std::span<const Twin> twins() {
#if defined(KAKEYA_HAS_TWINS)
  static const Twin all[] = {
      {"amx_bf16", "avx512_bf16", "amx_bf16_twin",
       renamed(cpu::amx_bf16_twin_kernels(), "cpu/amx_bf16_twin")},
      {"avx2_vnni", "avx2", "avx2_vnni_twin",
       renamed(cpu::avx2_vnni_twin_kernels(), "cpu/avx2_vnni_twin")},
  };
  return all;
#else
  return {};
#endif
}

bool runs_natively(std::string_view unit) {
  const auto sets = instruction_sets();
  return std::ranges::any_of(
      sets, [&](const InstructionSetSupport& set) { return set.name == unit && set.supported; });
}

// The twin of a unit, if there is one that this machine runs.
const Twin* find_twin(std::string_view unit) {
  for (const Twin& twin : twins()) {
    if (twin.unit == unit && runs_natively(twin.needs)) return &twin;
  }
  return nullptr;
}

}  // namespace

std::vector<TestUnit> test_units() {
  const char* const asked = std::getenv("KAKEYA_TEST_TWINS");
  const bool prefer_twins = asked != nullptr && std::string_view(asked) == "1";
  std::vector<TestUnit> units;
  for (const InstructionSetSupport& set : instruction_sets()) {
    TestUnit unit;
    unit.name = set.name;
    const Twin* const twin = find_twin(set.name);
    if (twin != nullptr && (prefer_twins || !set.supported)) {
      unit.run = UnitRun::kByTwin;
      unit.instruction_set = twin->instruction_set;
    } else if (set.supported) {
      unit.run = UnitRun::kNatively;
      unit.instruction_set = set.name;
    }
    units.push_back(std::move(unit));
  }
  return units;
}

std::string unit_name(const std::string& instruction_set) {
  for (const Twin& twin : twins()) {
    if (twin.instruction_set == instruction_set) return std::string(twin.unit);
  }
  return instruction_set;
}

Result<std::unique_ptr<Backend>> create_test_backend(const BackendOptions& options) {
  for (const Twin& twin : twins()) {
    if (options.name != "cpu/" + std::string(twin.instruction_set)) continue;
    if (find_twin(twin.unit) != nullptr) {
      return cpu::create_cpu_backend(twin.kernels, options.threads);
    }
  }
  if (options.name == kMlxKernels) return mlx::create_mlx_kernels_backend();
  return create_backend(options);
}

}  // namespace kakeya::test
