#include "runtime/cost_cache.h"

#include <fcntl.h>
#include <simdjson.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "formats/json_document.h"
#include "kakeya/version.h"

namespace kakeya {
namespace {

constexpr std::int64_t kFormatVersion = 1;
constexpr std::size_t kMaxFileBytes = 1 << 20;
constexpr double kMaxSeconds = 3600.0;  // no pass takes so long
constexpr std::size_t kMaxRows = 64;
constexpr std::size_t kMaxLanes = 16;

// FNV-1a of 64 bits (Fowler, Noll and Vo): the same on every machine and with every library.
std::uint64_t fnv1a(std::uint64_t hash, std::string_view text) {
  for (const char character : text) {
    hash ^= static_cast<unsigned char>(character);
    hash *= 0x100000001b3U;
  }
  return hash;
}

std::string file_path(const std::string& folder, const CostKey& key) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::string* text : {&key.binary, &key.model, &key.machine}) {
    hash = fnv1a(hash, *text);
    hash = fnv1a(hash, std::string_view("\0", 1));
  }
  return std::filesystem::path(folder) / fmt::format("costs-{:016x}.json", hash);
}

bool is_utf8(const std::string& text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

bool all_between(const std::vector<double>& table, double low) {
  for (const double seconds : table) {
    if (!(seconds >= low && seconds <= kMaxSeconds)) return false;  // nor NaN
  }
  return true;
}

// A source may draft in no measurable time, but no pass takes none.
bool plausible(const RoundCosts& costs) {
  const std::size_t rows = costs.verify.size();
  if (rows < 2 || rows > kMaxRows || costs.draft.size() > kMaxLanes) return false;
  if (!all_between(costs.verify, 1e-12)) return false;
  for (const std::vector<double>& lane : costs.draft) {
    if (lane.size() != rows - 1 || !all_between(lane, 0.0)) return false;
  }
  return true;
}

// Nothing if it is no regular file (a pipe would block) or larger than any file of ours.
std::optional<std::string> read_small_file(const std::string& path) {
  std::error_code ignored;  // what cannot be examined is not read
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || file.gcount() <= 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) return std::nullopt;
  return text;
}

std::optional<std::vector<double>> to_table(simdjson::dom::element value) {
  simdjson::dom::array array;
  if (value.get(array) != simdjson::SUCCESS) return std::nullopt;
  std::vector<double> table;
  for (const simdjson::dom::element item : array) {
    double seconds = 0.0;
    if (item.get(seconds) != simdjson::SUCCESS) return std::nullopt;
    table.push_back(seconds);
  }
  return table;
}

std::optional<RoundCosts> to_costs(const JsonFields& fields) {
  const auto verify = fields.find("verify");
  const auto draft = fields.find("draft");
  simdjson::dom::array lanes;
  if (!verify || !draft || draft->get(lanes) != simdjson::SUCCESS) return std::nullopt;
  auto table = to_table(*verify);
  if (!table) return std::nullopt;
  RoundCosts costs{.verify = std::move(*table), .draft = {}};
  for (const simdjson::dom::element lane : lanes) {
    table = to_table(lane);
    if (!table) return std::nullopt;
    costs.draft.push_back(std::move(*table));
  }
  if (!plausible(costs)) return std::nullopt;
  return costs;
}

bool has_text(const JsonFields& fields, std::string_view name, const std::string& expected) {
  std::string_view text;
  const auto value = fields.find(name);
  return value && value->get(text) == simdjson::SUCCESS && text == expected;
}

std::string to_text(const CostKey& key, const RoundCosts& costs) {
  const nlohmann::json document = {{"version", kFormatVersion}, {"binary", key.binary},
                                   {"model", key.model},        {"machine", key.machine},
                                   {"verify", costs.verify},    {"draft", costs.draft}};
  return document.dump(1);
}

// Writes all of `text` to a new file beside `path` and gives it that name.
bool write_atomically(const std::string& path, const std::string& text) {
  std::string temporary = path + ".XXXXXX";
  const int descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return false;
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(descriptor, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  const bool complete = done == text.size();
  const bool closed = ::close(descriptor) == 0;
  if (complete && closed && std::rename(temporary.c_str(), path.c_str()) == 0) return true;
  const int failure = errno;
  ::unlink(temporary.c_str());
  errno = failure;
  return false;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

}  // namespace

std::optional<RoundCosts> load_costs(const std::string& folder, const CostKey& key) {
  const auto text = read_small_file(file_path(folder, key));
  if (!text) return std::nullopt;
  const auto document = JsonDocument::parse(*text);
  simdjson::dom::object object;
  if (!document || document->root().get(object) != simdjson::SUCCESS) return std::nullopt;
  const JsonFields fields(object, "");
  if (!fields.integer("version", {kFormatVersion, kFormatVersion}) ||
      !has_text(fields, "binary", key.binary) || !has_text(fields, "model", key.model) ||
      !has_text(fields, "machine", key.machine)) {
    return std::nullopt;
  }
  return to_costs(fields);
}

Status store_costs(const std::string& folder, const CostKey& key, const RoundCosts& costs) {
  if (!plausible(costs)) {
    return invalid_argument(
        "costs to store: expected 2 to {} rows of seconds, got {} rows, or "
        "values that are no costs",
        kMaxRows, costs.verify.size());
  }
  if (!is_utf8(key.binary) || !is_utf8(key.model) || !is_utf8(key.machine)) {
    return invalid_argument("key of costs to store: expected valid UTF-8, got other bytes");
  }
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    return error(StatusCode::kUnavailable, "cannot make the folder {}: {}", folder,
                 failure.message());
  }
  const std::string path = file_path(folder, key);
  if (!write_atomically(path, to_text(key, costs))) {
    return error(StatusCode::kUnavailable, "cannot write {}: {}", path, std::strerror(errno));
  }
  return {};
}

std::string default_cache_folder(std::string_view xdg_cache_home, std::string_view home) {
  if (xdg_cache_home.starts_with('/')) return std::string(xdg_cache_home) + "/kakeya";
  if (home.starts_with('/')) return std::string(home) + "/.cache/kakeya";
  return "";
}

std::string machine_text(int num_threads, std::string_view backend_name) {
  return fmt::format("{}, {} threads, {}", cpu_name(), num_threads, backend_name);
}

std::string binary_text() {
  struct stat status = {};
  if (::stat("/proc/self/exe", &status) != 0) return kakeya::kVersion;
  return fmt::format("{}, {} bytes of {}.{:09}", kakeya::kVersion, status.st_size,
                     status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

}  // namespace kakeya
