// Names of the Hugging Face Hub: of repositories, of files in them and of hashes.
#pragma once

#include <string>
#include <string_view>

#include "kakeya/status.h"

namespace kakeya::cli {

struct HubName {
  std::string repository;  // OWNER/NAME
  std::string wanted;      // a type or a file of it; empty: any
};

// Takes OWNER/NAME, OWNER/NAME:TYPE and OWNER/NAME:FILE apart. Errors: kInvalidArgument for
// anything else.
Result<HubName> parse_hub_name(const std::string& text);

// Errors: kInvalidArgument for what cannot be a branch, a tag or a commit.
Status check_revision(const std::string& revision);

// True for the path of a file below a folder that leaves it in no way and is safe to print.
bool is_safe_path(std::string_view path);

// True for so many digits of a hash.
bool is_hash(std::string_view text, std::size_t digits);

// The text as one segment of a URL.
std::string url_segment(std::string_view text);
// A path as segments of a URL.
std::string url_path(std::string_view path);

}  // namespace kakeya::cli
