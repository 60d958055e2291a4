// Operations on rows that MLX has no single one for, made in one of two ways. Inputs have any
// shape; a row is so many numbers as they follow one another.
#pragma once

#include <mlx/mlx.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backend/backend.h"

namespace kakeya::mlx {

// More rows of a sequence or pass are of prompts, where a GPU multiplies matrices, not rows one by
// one: what is best for one is not for the other, and blocks of drafts have no more rows.
inline constexpr std::int64_t kMostSingleRows = 16;

// The arrays that make keys where values alone are stored: a value times k_norm, turned.
struct DerivedKeys {
  ::mlx::core::array k_norm;  // f32 [E]
  ::mlx::core::array cos;     // f32 [N, E / 2], of the values' positions
  ::mlx::core::array sin;
};

// Queries of one sequence at a layer, and what they see.
struct AttentionRows {
  ::mlx::core::array queries;  // f32 [1, K, Q, E]: for each head of values, rows times heads
  std::variant<::mlx::core::array, DerivedKeys> keys;
  ::mlx::core::array values;  // [1, N, K, E], f32 or bf16; keys that are there have the same type
  ::mlx::core::array seen;    // bool [Q, N]
  // C + 1: where spans of values begin, and N.
  std::vector<std::int32_t> spans;
  float scale;
  std::int64_t rows;  // of the sequence, that the queries are of
};

struct Routes {
  ::mlx::core::array experts;  // uint32 [T, K], best first; of equal ones the lower id
  ::mlx::core::array weights;  // f32 [T, K]
};

class RowOperations {
 public:
  explicit RowOperations(::mlx::core::Stream stream) : s_(stream) {}
  virtual ~RowOperations() = default;
  ::mlx::core::Stream stream() const { return s_; }

  // Rows of `width`: x / sqrt(mean(x^2) + eps) * weight [width].
  virtual ::mlx::core::array rms_norm(const ::mlx::core::array& x,
                                      const std::optional<::mlx::core::array>& weight,
                                      std::int64_t width,
                                      float eps) const = 0;
  // Vectors of 2 * half numbers, turned by angles whose cosines and sines are [T, half] each: one
  // row of them for as many neighbouring vectors as there are for each.
  virtual ::mlx::core::array rotation(const ::mlx::core::array& x,
                                      const ::mlx::core::array& cos,
                                      const ::mlx::core::array& sin,
                                      std::int64_t half) const = 0;
  // activation(gate) * other, of equal shapes.
  virtual ::mlx::core::array gate(GateActivation activation,
                                  const ::mlx::core::array& gate,
                                  const ::mlx::core::array& other) const = 0;
  // Row t: the sum over ranks r, ascending, of factors [T, R] times rows x [T, R, ..., width].
  virtual ::mlx::core::array weighted_sum(const ::mlx::core::array& x,
                                          const ::mlx::core::array& factors,
                                          std::int64_t width) const = 0;
  // (a + b) * scale, of equal shapes.
  virtual ::mlx::core::array add(const ::mlx::core::array& a,
                                 const ::mlx::core::array& b,
                                 float scale) const = 0;
  // The top_k largest of each row of logits [T, E], and the softmax over them alone, times the
  // scales [1, E] of the chosen.
  virtual Routes route(const ::mlx::core::array& logits,
                       const ::mlx::core::array& scales,
                       std::int64_t top_k) const = 0;
  // Keys of values [1, N, K, E] in f32.
  ::mlx::core::array keys_of(const ::mlx::core::array& values, const DerivedKeys& derived) const;
  // [1, K, Q, E].
  virtual ::mlx::core::array attention(const AttentionRows& input) const;

 protected:
  const ::mlx::core::Stream s_;
};

enum class RowOperationsKind : std::uint8_t {
  // Composed of MLX's operations, for every device: the specification of the kernels.
  kComposed,
  // Kernels of this backend's own, where there is one for the sizes at hand. The CPU device runs
  // them as C++, for tests.
  kKernels
};
std::unique_ptr<RowOperations> create_row_operations(RowOperationsKind kind,
                                                     ::mlx::core::Stream stream);
// The two of them.
std::unique_ptr<RowOperations> composed_operations(::mlx::core::Stream stream);
std::unique_ptr<RowOperations> kernel_operations(::mlx::core::Stream stream);

// The results that differ from those of `specified` for some small inputs, or are refused; empty if
// none. On a device that nobody tried, kernels are used only if they pass.
std::string compare_operations(const RowOperations& tried, const RowOperations& specified);

}  // namespace kakeya::mlx
