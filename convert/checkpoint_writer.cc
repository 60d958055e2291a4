#include "convert/checkpoint_writer.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/status.h"
#include "convert/source_model.h"
#include "formats/safetensors_writer.h"

namespace kakeya {

namespace {

Shape with_last_axis(Shape shape, std::int64_t size) {
  shape.back() = size;
  return shape;
}

// The tensors of the file that one output becomes: itself, or codes, scales and biases.
std::vector<SafetensorsLayout> layouts_of(const OutputTensor& tensor) {
  const Shape& shape = tensor.rows.shape();
  if (const auto* dtype = std::get_if<DType>(&tensor.encoding)) {
    return {{tensor.name, *dtype, shape}};
  }
  const auto format = std::get<AffineFormat>(tensor.encoding);
  const std::string stem = tensor.name.substr(0, tensor.name.size() - kWeightSuffix.size());
  const Shape groups = with_last_axis(shape, shape.back() / format.group_size);
  const std::int64_t words = affine_code_bytes(format, shape.back()) / 4;
  return {{tensor.name, DType::kU32, with_last_axis(shape, words)},
          {stem + ".scales", tensor.rows.dtype(), groups},
          {stem + ".biases", tensor.rows.dtype(), groups}};
}

// Writes one file.
Status write_shard(const std::string& path,
                   std::span<const OutputTensor> tensors,
                   const std::string& format,
                   TensorEncoder& encoder) {
  std::vector<SafetensorsLayout> layouts;
  for (const OutputTensor& tensor : tensors) {
    for (SafetensorsLayout& layout : layouts_of(tensor)) layouts.push_back(std::move(layout));
  }
  KAKEYA_ASSIGN_OR_RETURN(SafetensorsWriter file,
                          SafetensorsWriter::create(path, layouts, {{"format", format}}));
  std::size_t first = 0;
  for (const OutputTensor& tensor : tensors) {
    KAKEYA_TRY(encoder.encode(tensor, [&](std::size_t part, std::span<const std::byte> bytes) {
      return file.write(first + part, bytes);
    }));
    first += part_row_bytes(tensor).size();
  }
  return file.commit();
}

// How many of the tensors each file holds.
std::vector<std::size_t> cut_into_shards(std::span<const OutputTensor> tensors,
                                         std::uint64_t max_bytes) {
  std::vector<std::size_t> counts;
  std::uint64_t bytes = 0;
  for (const OutputTensor& tensor : tensors) {
    const std::uint64_t own = output_bytes(tensor);
    if (counts.empty() || bytes + own > max_bytes) {
      counts.push_back(0);
      bytes = 0;
    }
    ++counts.back();
    bytes += own;
  }
  return counts;
}

std::string shard_name(std::size_t index, std::size_t count) {
  return count == 1 ? "model.safetensors"
                    : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

Status write_index(const std::string& folder,
                   std::span<const OutputTensor> tensors,
                   std::span<const std::size_t> counts) {
  nlohmann::json weight_map;
  std::uint64_t total = 0;
  std::size_t next = 0;
  for (std::size_t shard = 0; shard < counts.size(); ++shard) {
    for (std::size_t i = 0; i < counts[shard]; ++i, ++next) {
      total += output_bytes(tensors[next]);
      for (const SafetensorsLayout& layout : layouts_of(tensors[next])) {
        weight_map[layout.name] = shard_name(shard, counts.size());
      }
    }
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  const std::string text = index.dump(2) + "\n";
  KAKEYA_ASSIGN_OR_RETURN(
      AtomicFile file,
      AtomicFile::create(folder + "/model.safetensors.index.json", FileAccess::kUmask));
  KAKEYA_TRY(file.write_at(0, std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace

Status write_checkpoint(const std::string& folder,
                        std::span<const OutputTensor> tensors,
                        const WriterOptions& options,
                        MemoryBudget& budget,
                        ThreadPool& pool) {
  TensorEncoder encoder(tensors, options.progress, budget, pool, options.importance);
  const std::vector<std::size_t> counts = cut_into_shards(tensors, options.max_shard_bytes);
  std::size_t next = 0;
  for (std::size_t shard = 0; shard < counts.size(); ++shard) {
    KAKEYA_TRY(write_shard(folder + "/" + shard_name(shard, counts.size()),
                           tensors.subspan(next, counts[shard]), options.format, encoder));
    next += counts[shard];
  }
  return counts.size() > 1 ? write_index(folder, tensors, counts) : Status();
}

}  // namespace kakeya
