#include "backend/none/missing_backends.h"

#include <array>

namespace kakeya::none {
namespace {

constexpr std::array kMissing = {
    MissingBackend{
        "cuda", "this version runs its code for NVIDIA cards only as cuda-emulated, on the host"},
};

}  // namespace

std::span<const MissingBackend> missing_backends() {
  return kMissing;
}

}  // namespace kakeya::none
