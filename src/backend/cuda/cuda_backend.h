// The backend for NVIDIA cards.
#pragma once

#include <memory>
#include <string_view>

#include "backend/backend.h"
#include "backend/cuda/driver.h"

namespace kakeya::cuda {

// Products of quantised weights are those of fast_integers(), bit for bit. Others are f32 sums in
// the order that device/products.h says, of activations rounded to bf16 where fast_integers()'s
// mode and weights of bf16 ask for it. Attention is f32, or of bf16 on tensor cores where the mode
// is fast and rows are stored as bf16 (device/tensor_attention.h).
// `threads` pack weights; 0: one for each CPU.
std::unique_ptr<Backend> create_backend_on(std::unique_ptr<Driver> driver, int threads = 0);

// Creates a backend on the card with this number, counted from 0. Errors: those of
// create_cuda_driver(); kInvalidArgument for what is no number.
Result<std::unique_ptr<Backend>> create_cuda_backend(std::string_view card = "0", int threads = 0);

}  // namespace kakeya::cuda
