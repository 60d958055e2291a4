#include "backend/cpu/instruction_set.h"

#include "backend/cpu/units/units.h"
#include "base/status.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace kakeya::cpu {
namespace {

struct Unit {
  std::string_view name;
  const Kernels& (*kernels)();
  bool (*supported)();
};

#if defined(__x86_64__)

struct CpuidLeaf {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
};

CpuidLeaf cpuid(unsigned leaf, unsigned subleaf) {
  CpuidLeaf r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

bool bit(unsigned word, int position) {
  return ((word >> position) & 1U) != 0;
}

// The register states that the system saves and restores (XCR0); 0 if it cannot tell.
std::uint64_t saved_states() {
  if (!bit(cpuid(1, 0).c, 27)) return 0;
  unsigned low = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

constexpr std::uint64_t kAvxStates = 0x6;      // SSE and AVX
constexpr std::uint64_t kAvx512States = 0xe6;  // and masks and the upper registers
constexpr std::uint64_t kTileStates = 0x60000;

bool saves(std::uint64_t states) {
  return (saved_states() & states) == states;
}

[[maybe_unused]] bool has_avx2() {
  const CpuidLeaf basic = cpuid(1, 0);
  return saves(kAvxStates) && bit(basic.c, 12) && bit(basic.c, 29) && bit(cpuid(7, 0).b, 5);
}

[[maybe_unused]] bool has_avx2_vnni() {
  return has_avx2() && bit(cpuid(7, 1).a, 4);  // AVX-VNNI
}

[[maybe_unused]] bool has_avx512() {
  const unsigned b = cpuid(7, 0).b;
  const bool instructions = bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);  // F DQ BW VL
  return has_avx2() && saves(kAvx512States) && instructions;
}

[[maybe_unused]] bool has_avx512_vnni() {
  return has_avx512() && bit(cpuid(7, 0).c, 11);
}

[[maybe_unused]] bool has_avx512_bf16() {
  return has_avx512_vnni() && bit(cpuid(7, 1).a, 5);
}

// Tile data must be granted by the kernel, once for the process.
bool granted_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Tiles of bf16 and of int8.
[[maybe_unused]] bool has_amx_bf16() {
  const unsigned d = cpuid(7, 0).d;
  return has_avx512_bf16() && bit(d, 22) && bit(d, 24) && bit(d, 25) && saves(kTileStates) &&
         granted_tiles();
}

#endif

bool always() {
  return true;
}

constexpr Unit kUnits[] = {
#if defined(KAKEYA_HAS_AMX_BF16)
    {"amx_bf16", amx_bf16_kernels, has_amx_bf16},
#endif
#if defined(KAKEYA_HAS_AVX512_BF16)
    {"avx512_bf16", avx512_bf16_kernels, has_avx512_bf16},
#endif
#if defined(KAKEYA_HAS_AVX512_VNNI)
    {"avx512_vnni", avx512_vnni_kernels, has_avx512_vnni},
#endif
#if defined(KAKEYA_HAS_AVX512)
    {"avx512", avx512_kernels, has_avx512},
#endif
#if defined(KAKEYA_HAS_AVX2_VNNI)
    {"avx2_vnni", avx2_vnni_kernels, has_avx2_vnni},
#endif
#if defined(KAKEYA_HAS_AVX2)
    {"avx2", avx2_kernels, has_avx2},
#endif
    {"portable", portable_kernels, always},
};

}  // namespace

std::vector<InstructionSetSupport> list_instruction_sets() {
  std::vector<InstructionSetSupport> sets;
  for (const Unit& unit : kUnits) sets.push_back({unit.name, unit.supported()});
  return sets;
}

Result<const Kernels*> select_kernels(std::string_view name) {
  std::string names = "auto";
  for (const Unit& unit : kUnits) {
    names += fmt::format(", {}", unit.name);
    if (name != "auto" && name != unit.name) continue;
    if (unit.supported()) return &unit.kernels();
    if (name == unit.name) {
      return error(StatusCode::kFailedPrecondition, "this machine does not run instruction set {}",
                   name);
    }
  }
  return invalid_argument("EngineOptions::backend must be cpu/ and one of {} but is 'cpu/{}'",
                          names, name);
}

Result<const Kernels*> kernels_of_backend(std::string_view backend) {
  if (backend == "cpu") return select_kernels("auto");
  if (backend.starts_with("cpu/")) return select_kernels(backend.substr(4));
  return invalid_argument("EngineOptions::backend must be cpu or cpu/INSTRUCTION_SET but is '{}'",
                          backend);
}

}  // namespace kakeya::cpu
