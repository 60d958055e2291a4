// Texts that clients come back for, as stored responses are: by id and owner, in SQLite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kakeya/status.h"
#include "service/sessions/database.h"

namespace kakeya::service {

// Thread-safe. Where there are too many texts, or bytes of them, the owner who has most loses the
// oldest first. Errors of all calls, beside those named: as Database::run().
class KeptTexts {
 public:
  static constexpr std::int64_t kMostTexts = 1024;
  static constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;

  // Opens those of a folder; in memory if it is empty. `report`: DatabaseOptions::report. Errors:
  // as Database::open().
  static Result<std::unique_ptr<KeptTexts>> open(const std::string& folder,
                                                 std::int64_t most_texts = kMostTexts,
                                                 std::int64_t most_bytes = kMostBytes,
                                                 ReportFailure report = {});
  ~KeptTexts();
  KeptTexts(const KeptTexts&) = delete;
  KeptTexts& operator=(const KeptTexts&) = delete;

  // Keeps a text for its owner (Client::name()). Errors: kResourceExhausted for one that is larger
  // than all may be; kFailedPrecondition for an id that the owner has a text of, which stays.
  Status put(const std::string& owner, const std::string& id, const std::string& text);
  // Errors: kNotFound.
  Result<std::string> find(const std::string& owner, const std::string& id);
  Status remove(const std::string& owner, const std::string& id);

  struct Size {
    std::int64_t texts = 0;
    std::int64_t bytes = 0;
  };
  Result<Size> size();

  // Reports that a text which was found is not what was put, as Database::report_damage().
  Error report_damage(const std::string& id);
  // True once damage was found: texts may be gone.
  bool is_damaged() const;

 private:
  KeptTexts(std::unique_ptr<Database> database, std::int64_t most_texts, std::int64_t most_bytes);

  const std::int64_t most_texts_;
  const std::int64_t most_bytes_;
  std::unique_ptr<Database> database_;
};

}  // namespace kakeya::service
