// Files that are not what they should be, as far as their beginnings tell.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kakeya/status.h"

namespace kakeya {

// Errors: kInvalidArgument if the bytes are a Git LFS pointer: the few lines that a clone without
// Git LFS has in place of a large file.
Status check_no_lfs_pointer(std::span<const std::byte> bytes);

// The words to add to "there is no config.json in this folder": the GGUF file that is there
// instead, or nothing.
std::string gguf_beside(const std::string& folder);

}  // namespace kakeya
