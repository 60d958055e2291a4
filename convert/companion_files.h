// The files around the weights of a model folder that go along when it is converted, and a check
// that there is a place for the result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kakeya/status.h"

namespace kakeya {

struct CompanionFiles {
  // The files to copy as they are, by their path in the folder: generation_config.json, the
  // tokenizer's and the template's files, licences, and the files of drafter/.
  std::vector<std::string> copied;
  std::uint64_t copied_bytes = 0;
  // Neither copied nor converted, such as "projections/" or "README.md".
  std::vector<std::string> left_out;
};

// Looks only at names and sizes. An unreadable folder has no files.
CompanionFiles find_companion_files(const std::string& dir);

// Copies them into a folder that has none of them. Errors: kUnavailable; kNotFound if one has gone.
Status copy_companion_files(const CompanionFiles& files,
                            const std::string& from,
                            const std::string& to);

// Checks that a folder may be put at `target`, made from what is at `source`, and its parent has
// room for so many bytes. With `replace`, what is there must look like a converted model: files,
// one of them config.json, and no folders but drafter/. Errors: kFailedPrecondition, kUnavailable.
Status check_target_folder(const std::string& source,
                           const std::string& target,
                           bool replace,
                           std::uint64_t bytes);

// Errors: kUnavailable if the folder, or the working folder for an empty name, lacks the room.
Status check_room(const std::string& folder, std::uint64_t bytes);

}  // namespace kakeya
