// Loads weights by name from a TensorSource into a Backend, keeping the first error and reporting
// progress, so that a model's load function reads as a list of its tensors. The same function run
// over a measuring loader says what loading will take.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/memory_budget.h"
#include "model/packed_weights.h"
#include "model/tensor_source.h"

namespace kakeya {

// A weight vector in f32, in the backend's memory.
class WeightVector {
 public:
  WeightVector() = default;
  WeightVector(Buffer buffer, std::int64_t size) : buffer_(std::move(buffer)), size_(size) {}
  DevicePointer<const float> data() const { return buffer_.device<float>(); }
  std::int64_t size() const { return size_; }
  operator ConstVector() const { return {data(), size_}; }

 private:
  Buffer buffer_;
  std::int64_t size_ = 0;
};

// A part of fused expert matrices, which some checkpoints hold as a tensor of its own.
struct ExpertRows {
  std::string fused;  // rows [row, row + rows) of every matrix of this tensor [X, N, K]
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::string own;  // or this one [X, rows, K], if the source has it
};

class WeightLoader {
 public:
  using Progress = std::function<void(std::uint64_t bytes_done)>;

  // Matrices are taken from `packed`, if there is one and it is mapped, and else added to it; it
  // must have the packed_entries() of a measuring loader, and outlive what is loaded.
  WeightLoader(TensorSource& source,
               Backend& backend,
               MemoryBudget& budget,
               Progress progress,
               PackedWeights* packed = nullptr)
      : source_(source),
        backend_(backend),
        budget_(&budget),
        progress_(std::move(progress)),
        packed_(packed) {}

  // A loader that loads nothing: every object it gives is empty, and bytes are only counted.
  WeightLoader(TensorSource& source, Backend& backend) : source_(source), backend_(backend) {}

  // Each returns an empty object once anything has failed; check status() at the end.
  std::unique_ptr<Matrix> matrix(const std::string& name, Compute compute);
  std::unique_ptr<Matrix> expert_rows(const ExpertRows& wanted, Compute compute);
  // A table used for look-ups only: read where it lies if the source keeps it, else loaded.
  std::unique_ptr<Matrix> table(const std::string& name, Compute compute);
  // The tensor flattened, times `factor`.
  WeightVector vector(const std::string& name, float factor = 1.0F);
  float scalar(const std::string& name);
  // Numbers that follow from the configuration, where operations find them.
  WeightVector constant(std::span<const float> values);
  // The tensor [N, K] in f32 as [K, N], flattened.
  WeightVector transposed(const std::string& name);

  Status status() const;

  // A number that stands for the tensors loaded so far: names, shapes, types and every value, but
  // of tables() no value. Other weights give another but by chance. 0 while measuring.
  std::uint64_t fingerprint() const { return fingerprint_; }
  // The tensors that table() reads where they lie; the views are good for as long as the source.
  std::span<const TensorView> tables() const { return tables_; }

  // Bytes of the source's tensors so far, and what the budget was (or would be) charged for them.
  std::uint64_t source_bytes() const { return source_bytes_; }
  std::uint64_t charged_bytes() const { return charged_bytes_; }

  // The matrices so far, as PackedWeights holds them.
  std::span<const PackedEntry> packed_entries() const { return packed_entries_; }

 private:
  // Rows of every matrix of a stacked tensor; none: all.
  struct RowRange {
    std::int64_t begin = 0;
    std::int64_t count = 0;
  };

  // But for a matrix, searched for NaN and added to the fingerprint.
  std::optional<TensorView> fetch(const std::string& name, bool matrix = false);
  // Room for these values, and they in it; empty while measuring or after an error.
  WeightVector upload(const std::string& name, std::span<const float> values);
  // The tensor in f32, element i of it at place(i).
  template <typename Place>
  WeightVector copy_f32(const std::string& name, const TensorView& view, float factor, Place place);
  std::unique_ptr<Matrix> load(const std::string& name, RowRange range, Compute compute);
  Result<std::unique_ptr<Matrix>> load_or_map(const TensorView& view,
                                              const PackedEntry& entry,
                                              Compute compute);
  void fail(const Error& error);
  void fail_to_load(const std::string& name, const Error& error);
  void advance(std::uint64_t source_bytes, std::uint64_t charged_bytes);
  void add_to_fingerprint(std::uint64_t hash);
  bool measuring() const { return budget_ == nullptr; }
  bool mapping() const { return packed_ != nullptr && packed_->is_mapped(); }

  TensorSource& source_;
  Backend& backend_;
  MemoryBudget* budget_ = nullptr;  // null: measuring
  Progress progress_;
  PackedWeights* packed_ = nullptr;  // null: none
  std::vector<PackedEntry> packed_entries_;
  std::uint64_t source_bytes_ = 0;
  std::uint64_t charged_bytes_ = 0;
  std::uint64_t fingerprint_ = 0;
  std::vector<TensorView> tables_;
  std::optional<Error> error_;
};

}  // namespace kakeya
