// The backend for NVIDIA cards, on an emulated one: the kernels of device/ run on the host
// (emulator.h).
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cuda/driver.h"

namespace kakeya::cuda {

// Products of quantised weights are those of fast_integers(), bit for bit. Others are f32 sums in
// the order that device/products.h says, of activations rounded to bf16 where fast_integers()'s
// mode and weights of bf16 ask for it. Attention is f32 in either mode.
// Errors: those of create_emulated_driver().
Result<std::unique_ptr<Backend>> create_emulated_backend(const EmulatorOptions& options = {});

}  // namespace kakeya::cuda
