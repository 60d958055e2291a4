#include "runtime/model_identity.h"

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/mapped_file.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "formats/gguf_checkpoint.h"
#include "tensor/weight_hash.h"

namespace kakeya {

Result<std::string> identify_model(const std::string& path, std::uint64_t weights) {
  std::uint64_t config = 0;
  if (is_gguf_path(path)) {
    KAKEYA_ASSIGN_OR_RETURN(const GgufCheckpoint checkpoint, GgufCheckpoint::open(path));
    config = metadata_fingerprint(checkpoint);
  } else if (!path.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path + "/config.json"));
    config = checksum(file.bytes());
  }
  return fmt::format("{:016x}{:016x}", config, weights);
}

const std::string& TableIdentity::text() {
  std::call_once(made_, [this] {
    text_ = "none";
    if (tables_.empty()) return;
    ThreadPool pool({.num_threads = num_threads_, .pin = false});
    std::uint64_t hash = 0;
    for (const TensorView& table : tables_) {
      const std::uint64_t own = hash_weight(table, pool);
      hash = checksum(std::as_bytes(std::span(&own, 1)), hash);
    }
    text_ = fmt::format("{:016x}", hash);
  });
  return text_;
}

}  // namespace kakeya
