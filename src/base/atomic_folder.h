// A folder that takes the place of another in one step, or leaves no trace.
#pragma once

#include <string>

#include "kakeya/status.h"

namespace kakeya {

// Filled under a name of its own beside the target (the target's name, ".partial-" and six random
// characters), then renamed. Destroyed without commit(), it is removed with all that is in it; a
// killed process leaves it behind. Move-only; one thread at a time.
class AtomicFolder {
 public:
  enum class Existing {
    kRefuse,   // the target must be absent or an empty folder
    kReplace,  // a folder at the target is removed by commit()
  };

  // Folders above the target are made where there are none, and stay. Errors: kFailedPrecondition
  // if the target is there and may not be replaced, or is no folder; kUnavailable if its parent
  // takes no new folder.
  static Result<AtomicFolder> create(const std::string& target, Existing existing);

  AtomicFolder(AtomicFolder&& other) noexcept;
  AtomicFolder& operator=(AtomicFolder&& other) noexcept;
  ~AtomicFolder();

  // Where the files go until commit().
  const std::string& path() const { return path_; }
  const std::string& target() const { return target_; }

  // Puts the folder in the target's place. Its files are as safe as their writers made them.
  // Errors: kUnavailable if the system refuses; the target is then as before.
  Status commit();

 private:
  AtomicFolder() = default;
  void discard();

  std::string target_;
  std::string path_;  // empty after commit()
  Existing existing_ = Existing::kRefuse;
};

}  // namespace kakeya
