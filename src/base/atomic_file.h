// A file that takes the place of another in one step, or leaves no trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kakeya/status.h"

namespace kakeya {

// Who may use a new file.
enum class FileAccess : std::uint8_t {
  kOwner,  // mode 0600: what people have said
  kUmask,  // mode 0666 less the process's umask: models, results
};

// The treatment of a symbolic link that is the target.
enum class LinkedTarget : std::uint8_t {
  kKept,      // it stays one, and the file that it names is replaced
  kReplaced,  // it is replaced itself: where others may have laid it
};

// Written under a name of its own beside the target (the target's name, ".partial-" and six random
// characters), so that commit() can rename it. Until then the target is untouched, even
// if the process is killed; a killed process leaves the partial file behind. Destroyed without
// commit(), it is removed. Move-only; one thread at a time.
class AtomicFile {
 public:
  // Between the target's name and the random characters.
  static constexpr std::string_view kPartial = ".partial-";

  // Removes what killed processes left beside the target: partial files of its name, or, if only
  // the name's extension is to be like the target's, of others. A file that a process still writes
  // is locked by it; where locks do not work, files that nobody has written to for an hour count
  // as left. What cannot be removed stays.
  enum class Names : std::uint8_t { kTarget, kExtension };
  static void remove_abandoned(const std::string& target, Names names = Names::kTarget);

  // Errors: kUnavailable if there is something that is no regular file, such as a device, a FIFO or
  // a folder, or if the folder takes no new file; kResourceExhausted if the disk is full.
  static Result<AtomicFile> create(const std::string& target,
                                   FileAccess access = FileAccess::kOwner,
                                   LinkedTarget linked = LinkedTarget::kKept);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  // False after commit() and after any error.
  bool is_open() const { return descriptor_ >= 0; }
  const std::string& target() const { return target_; }

  // Bytes that are skipped read as zeros. Errors: kResourceExhausted if the disk is full or the
  // user's part of it, kUnavailable if it refuses otherwise, and kFailedPrecondition if the file is
  // not open; the partial file is gone then.
  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes);

  // Makes the partial file so long, without bytes of its own, for others to see how large it will
  // be. Errors: those of write_at().
  Status reserve(std::uint64_t bytes);

  // Puts the file in the target's place and waits until the disk has it. Errors: those of
  // write_at(); the target is as before, unless the message says that only the folder could not be
  // flushed.
  Status commit();

 private:
  AtomicFile() = default;

  void discard();
  Unexpected fail(std::string_view what);
  Status flush_folder() const;

  std::string target_;
  std::string path_;  // of the partial file
  int descriptor_ = -1;
};

}  // namespace kakeya
