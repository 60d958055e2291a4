// Small files of folders that others may write into: no link is followed, and no more is read than
// was agreed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/descriptor.h"
#include "kakeya/status.h"

namespace kakeya::bridge {

// Who may use what is made.
enum class Sharing : std::uint8_t {
  kOwner,  // modes 0700 and 0600
  kUmask,  // what the process's umask leaves of 0777 and 0666: places that two sides share
};

// A folder of `parent` (AT_FDCWD: the present one), made if it is not there; links are not
// followed. Errors: kUnavailable; kFailedPrecondition for an owner's that is somebody else's, or
// that others may write into.
Result<Descriptor> open_folder(int parent,
                               const std::string& name,
                               Sharing sharing = Sharing::kOwner);

// A regular file of `folder` with at most `most` bytes. Errors: kNotFound; kFailedPrecondition for
// a link, a folder or a device, and for an owner's file that is somebody else's or that others may
// write; kResourceExhausted if it is longer, of which nothing is read.
Result<std::string> read_small_file(int folder,
                                    const std::string& name,
                                    std::size_t most,
                                    Sharing sharing = Sharing::kUmask);

// Takes the place of whatever had the name, a link included, in one step. Errors: kUnavailable.
Status write_small_file(int folder,
                        const std::string& name,
                        const std::string& text,
                        Sharing sharing = Sharing::kOwner);

}  // namespace kakeya::bridge
