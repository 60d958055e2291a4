// Weights of the CPU backend: packed once, when loaded, into panels that every instruction set
// reads. docs/cpu-backend.md shows the layout.
#pragma once

#include <utility>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

namespace kakeya::cpu {

// The form in which panels hold a weight.
struct PanelLayout {
  // The layout of a weight, of which only shape and types are looked at. Quantised weights keep
  // their integers where products are fast, if they have integers (tensor/integer_blocks.h), and
  // are decoded otherwise.
  PanelLayout(const TensorView& weight, Compute compute);

  Index padded_columns() const;
  Index num_panels() const { return (rows + kPanelRows - 1) / kPanelRows; }  // of one matrix
  Index panel_bytes() const;

  Index matrices = 1;
  Index rows = 0;
  Index columns = 0;
  Arithmetic arithmetic = Arithmetic::kF32;
  IntegerPanels integers;
};

class CpuMatrix final : public Matrix {
 public:
  // Panels: filled by load(), or mapped, and then not to be written to.
  CpuMatrix(const PanelLayout& layout, Buffer panels);
  // A table read in place, for gather() only.
  explicit CpuMatrix(const TensorView& table);

  // Bytes of the panels of such a tensor, as loaded.
  static std::uint64_t packed_bytes(const PanelLayout& layout);

  // Repacks `weight` and takes its hash, in parallel. Errors: kDataLoss where a number is not
  // finite.
  Status load(const TensorView& weight, const Kernels& kernels, ThreadPool& pool);

  Arithmetic arithmetic() const { return layout_.arithmetic; }
  const IntegerPanels& integers() const { return layout_.integers; }
  // True if products of both can be computed with the same packed rows.
  bool same_arithmetic(const CpuMatrix& other) const;
  Index padded_columns() const { return layout_.padded_columns(); }
  Index num_panels() const { return layout_.num_panels(); }
  Index panel_bytes() const { return layout_.panel_bytes(); }
  std::uint64_t bytes() const override {
    return static_cast<std::uint64_t>(num_panels() * panel_bytes());
  }
  std::span<const std::byte> packed() const override {
    return {data_, static_cast<std::size_t>(packed_bytes(layout_))};
  }
  std::optional<std::uint64_t> weight_hash() const override { return weight_hash_; }
  // First panel of one of the stacked matrices.
  const std::byte* panels(Index matrix) const {
    return data_ + matrix * num_panels() * panel_bytes();
  }

  // out[d] = scale * element [row, d] of the first matrix.
  void gather(Index row, float scale, float* out) const;

 private:
  // Rows [row, row + count) of `weight`, counted as they lie in memory, into a panel.
  void pack(const TensorView& weight,
            Index row,
            Index count,
            const Kernels& kernels,
            std::byte* panel) const;
  // Packs weights that must be widened or decoded first: f16, quantised.
  void pack_decoded(const TensorView& weight,
                    Index row,
                    Index count,
                    const Kernels& kernels,
                    std::byte* panel) const;
  void pack_integers(const TensorView& weight, Index row, Index count, std::byte* panel) const;

  PanelLayout layout_;
  TensorView table_;  // without data unless it is one
  Buffer owned_;
  const std::byte* data_ = nullptr;
  std::optional<std::uint64_t> weight_hash_;  // once load() has read the weight
};

}  // namespace kakeya::cpu
