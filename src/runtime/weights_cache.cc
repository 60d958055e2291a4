#include "runtime/weights_cache.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <filesystem>

#include "base/status.h"

namespace kakeya {

std::string weights_cache_path(const std::string& folder,
                               const std::string& model,
                               const std::string& layout) {
  std::error_code failed;
  std::filesystem::path path = std::filesystem::weakly_canonical(model, failed);
  if (failed) path = model;
  const std::string all = path.string() + '\n' + layout;
  const std::string name = fmt::format("{}-{:016x}.packed", path.filename().string(),
                                       XXH3_64bits(all.data(), all.size()));
  if (folder != "beside") return std::filesystem::path(folder) / name;
  return (std::filesystem::is_directory(path, failed) ? path : path.parent_path()) / name;
}

Result<PackedWeights*> WeightsCache::open(const std::string& path,
                                          const TensorSource& source,
                                          const Backend& backend,
                                          Compute compute,
                                          std::span<const PackedEntry> entries) {
  if (backend.packed_layout().empty()) {
    return invalid_argument("the {} backend keeps weights as they are: a weights cache is for cpu",
                            backend.name());
  }
  const std::string layout =
      fmt::format("{} {}", backend.packed_layout(), compute == Compute::kFast ? "fast" : "f32");
  KAKEYA_ASSIGN_OR_RETURN(
      auto file, PackedWeights::open(weights_cache_path(folder_, path, layout),
                                     {.source = source.identity(), .layout = layout}, entries,
                                     {.num_threads = backend.num_threads(), .trust = trust_}));
  files_.push_back(std::move(file));
  return files_.back().get();
}

}  // namespace kakeya
