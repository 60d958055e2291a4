#include "cli/hub/hub_name.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "cli/models/found_models.h"
#include "formats/printable.h"

namespace kakeya::cli {
namespace {

constexpr std::size_t kLongestPath = 1000;
constexpr std::size_t kLongestRevision = 200;
constexpr std::size_t kLongestName = 96;  // of an owner, and of a model

bool is_name_part(std::string_view part) {
  constexpr std::string_view kInside = ".-";
  const auto inside = [&](char c) { return kInside.find(c) != std::string_view::npos; };
  return !part.empty() && part.size() <= kLongestName && !inside(part.front()) &&
         !inside(part.back()) && part.find("--") == std::string_view::npos &&
         part.find("..") == std::string_view::npos && part.find('/') == std::string_view::npos;
}

}  // namespace

Result<HubName> parse_hub_name(const std::string& text) {
  const std::size_t colon = text.find(':');
  HubName name = {text.substr(0, colon), ""};
  if (colon != std::string::npos) name.wanted = text.substr(colon + 1);
  const std::size_t slash = name.repository.find('/');
  const bool is_name = is_model_name(text) && slash != std::string::npos &&
                       is_name_part(std::string_view(name.repository).substr(0, slash)) &&
                       is_name_part(std::string_view(name.repository).substr(slash + 1)) &&
                       (name.wanted.empty() || is_safe_path(name.wanted));
  if (is_name) return name;
  return invalid_argument(
      "'{}': expected a model of the Hugging Face Hub: OWNER/NAME, OWNER/NAME:TYPE or "
      "OWNER/NAME:FILE",
      printable(text));
}

Status check_revision(const std::string& revision) {
  if (is_safe_path(revision) && revision.size() <= kLongestRevision) return {};
  return invalid_argument("--revision: expected a branch, a tag or a commit, got '{}'",
                          printable(revision));
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > kLongestPath) return false;
  const bool plain = std::ranges::all_of(path, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != 0x7F && c != '\\';
  });
  if (!plain) return false;
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    const std::string_view part = path.substr(start, end - start);
    if (part.empty() || part == "." || part == "..") return false;
    start = end + 1;
  }
  return true;
}

bool is_hash(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string url_segment(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
  std::string url;
  for (const char c : text) {
    if (kPlain.find(c) != std::string_view::npos) {
      url += c;
    } else {
      url += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return url;
}

std::string url_path(std::string_view path) {
  std::string url;
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    if (start > 0) url += '/';
    url += url_segment(path.substr(start, end - start));
    start = end + 1;
  }
  return url;
}

}  // namespace kakeya::cli
