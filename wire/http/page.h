// The page that a person with a browser talks to: the files of wire/http/page, which the build
// puts into the program.
#pragma once

#include <span>
#include <string_view>

namespace kakeya::wire {

struct PageFile {
  std::string_view path;  // "/page/page.css"
  std::string_view content_type;
  std::string_view text;
};

// The page's Content-Security-Policy: a browser loads nothing but what this server sends. So a text
// that a model wrote can neither run a script nor fetch anything, even if it became markup.
inline constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// All of them. From any thread.
std::span<const PageFile> page_files();

// The file of a request's path, null if there is none; "/" is the page itself. From any thread.
const PageFile* find_page_file(std::string_view path);

}  // namespace kakeya::wire
