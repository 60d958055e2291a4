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
  explicit CpuMatrix(const TensorView& table);

  // Bytes of the panels of such a tensor, as loaded.
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
  // Of weights that must be widened or decoded first: f16, quantised.
  void load_decoded(const TensorView& weight, const Kernels& kernels, ThreadPool& pool);

  bool bf16_ = false;  // else f32; of panels
  TensorView table_;   // without data unless it is one
  Compute compute_;
  Buffer owned_;
  const std::byte* data_ = nullptr;
};

}  // namespace kakeya::cpu
