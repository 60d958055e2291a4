// A blob as it is written, and its hash meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cli/hub/hub_listing.h"
#include "kakeya/status.h"

struct evp_md_ctx_st;

namespace kakeya::cli {

class BlobWriter {
 public:
  // Takes up what an earlier try has left at `path`. `stopped`, true, ends the reading of it.
  // Errors: kFailedPrecondition for a path that cannot be written, kCancelled.
  static Result<std::unique_ptr<BlobWriter>> open(const std::string& path,
                                                  const HubFile& file,
                                                  const std::function<bool()>& stopped);
  ~BlobWriter();
  BlobWriter(const BlobWriter&) = delete;
  BlobWriter& operator=(const BlobWriter&) = delete;

  std::uint64_t bytes() const { return bytes_; }
  // False if it cannot be written, or is larger than it should be; problem() says which.
  bool write(std::string_view bytes);
  // Begins at the first byte. False if it cannot.
  bool restart();
  const std::string& problem() const { return problem_; }
  // Compares the whole blob with its hash, and gives it its name. Errors: kDataLoss for another
  // size, or hash: what was written is gone then; kFailedPrecondition.
  Status finish(const std::string& final_path);

 private:
  BlobWriter(std::string path, const HubFile& file);
  void begin_hash();
  void add_to_hash(std::string_view bytes);
  std::string hash();
  // Reads what is there into the hash. Errors: kFailedPrecondition, kCancelled.
  Status read_begun(const std::function<bool()>& stopped);

  std::string path_;
  HubFile file_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
  evp_md_ctx_st* context_ = nullptr;
  std::string problem_;
};

}  // namespace kakeya::cli
