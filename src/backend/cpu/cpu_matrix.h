// Weights of the CPU backend: packed once, when loaded, into panels that every instruction set
// reads. docs/cpu-backend.md shows the layout.
#pragma once

#include <span>
#include <utility>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

namespace kakeya::cpu {

class CpuMatrix final : public Matrix {
 public:
  // Panels, filled by load(); owns them.
  CpuMatrix(const Shape& shape, bool bf16, Compute compute, Buffer panels);
  // A table read in place, for gather() only.
  CpuMatrix(const Shape& shape, DType dtype, const std::byte* table);

  // Bytes of the panels of such a tensor.
  static std::uint64_t packed_bytes(const Shape& shape, DType dtype);

  // Repacks `weight`, in parallel.
  void load(const TensorView& weight, const Kernels& kernels, ThreadPool& pool);

  Arithmetic arithmetic() const;
  Index padded_columns() const { return round_up(cols(), kColumnUnit); }
  Index num_panels() const { return (rows() + kPanelRows - 1) / kPanelRows; }
  std::uint64_t bytes() const override {
    return static_cast<std::uint64_t>(num_panels() * panel_bytes());
  }
  Index panel_bytes() const { return padded_columns() * kPanelRows * (bf16_ ? 2 : 4); }
  // First panel of one of the stacked matrices.
  const std::byte* panels(Index matrix) const {
    return data_ + matrix * num_panels() * panel_bytes();
  }

  // out[d] = scale * element [row, d] of the first matrix.
  void gather(Index row, float scale, float* out) const;

 private:
  bool bf16_;  // else f32; of panels
  bool mapped_ = false;
  DType table_dtype_ = DType::kF32;
  Compute compute_;
  Buffer owned_;
  const std::byte* data_;
};

}  // namespace kakeya::cpu
