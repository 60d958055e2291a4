#include "backend/cuda/libcuda.h"

#include <dlfcn.h>

#include <type_traits>

#include "base/status.h"

namespace kakeya::cuda::libcuda {

Result<Table> open(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return error(StatusCode::kFailedPrecondition, "there is no NVIDIA driver here: {}",
                 ::dlerror());
  }
  Table table;
  const char* lacks = nullptr;
  const auto find = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
    if (function == nullptr && lacks == nullptr) lacks = symbol;
  };
#define KAKEYA_FUNCTION(name, symbol, parameters) find(table.name, #symbol);
  KAKEYA_LIBCUDA_FUNCTIONS(KAKEYA_FUNCTION)
#undef KAKEYA_FUNCTION
  if (lacks != nullptr) {
    return error(StatusCode::kFailedPrecondition,
                 "{} has no function {}: it is too old, or no driver of NVIDIA's", path, lacks);
  }
  if (const Code code = table.init(0); code != kSuccess) {
    return error(StatusCode::kFailedPrecondition, "the NVIDIA driver does not start: {}",
                 describe(table, code));
  }
  return table;
}

std::string describe(const Table& table, Code code) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (table.error_name(code, &name) != kSuccess || name == nullptr) {
    return fmt::format("error {}", code);
  }
  if (table.error_text(code, &text) != kSuccess || text == nullptr) return name;
  return fmt::format("{} ({})", name, text);
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace kakeya::cuda::libcuda
