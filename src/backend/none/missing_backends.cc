#include "backend/none/missing_backends.h"

#include <array>

namespace kakeya::none {
namespace {

constexpr std::array kMissing = {
    MissingBackend{"cuda", "this version has no code for NVIDIA cards"},
};

}  // namespace

std::span<const MissingBackend> missing_backends() {
  return kMissing;
}

}  // namespace kakeya::none
