// The identity of a model: saved sessions have it in their key (docs/formats/session.md).
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "kakeya/status.h"
#include "tensor/tensor_view.h"

namespace kakeya {

// Stands for a model: `weights` (WeightLoader::fingerprint) with a number of its config.json or of
// a GGUF file's metadata, if it is not made of random numbers. Errors: of opening the file.
Result<std::string> identify_model(const std::string& path, std::uint64_t weights);

// Stands for the tables that are read where the checkpoint lies. All of them must be read for that,
// so it is made when it is first asked for. Thread-safe.
class TableIdentity {
 public:
  // The views' memory must outlive it.
  TableIdentity(std::vector<TensorView> tables, int num_threads)
      : tables_(std::move(tables)), num_threads_(num_threads) {}

  // "none" without tables.
  const std::string& text();

 private:
  std::vector<TensorView> tables_;
  int num_threads_;
  std::once_flag made_;
  std::string text_;
};

}  // namespace kakeya
