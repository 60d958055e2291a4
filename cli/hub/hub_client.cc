#include "cli/hub/hub_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>
#include <utility>

#include "base/status.h"
#include "cli/hub/hub_name.h"
#include "formats/printable.h"

namespace kakeya::cli {
namespace {

constexpr std::size_t kMostListingBytes = std::size_t{64} << 20;
constexpr int kMostTries = 6;                                  // that bring next to nothing
constexpr std::uint64_t kWorthwhile = std::uint64_t{1} << 20;  // bytes
constexpr double kFirstWait = 0.5;                             // seconds; doubled each time
constexpr double kLongestWait = 60.0;                          // that a server may ask for

constexpr long kPartialContent = 206;
constexpr long kUnauthorized = 401;
constexpr long kForbidden = 403;
constexpr long kMissing = 404;
constexpr long kBeyondTheEnd = 416;
constexpr long kTooMany = 429;

std::string header_of(const HttpAnswer& answer, const char* name) {
  const auto found = answer.headers.find(name);
  return found == answer.headers.end() ? "" : found->second;
}

// The number that a text begins with; `otherwise` without one.
std::uint64_t leading_number(std::string_view text, std::uint64_t otherwise) {
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc() ? number : otherwise;
}

// True if an answer's bytes begin where they were asked for.
bool begins_at(const HttpAnswer& answer, std::uint64_t from) {
  constexpr std::string_view kBytes = "bytes ";
  const std::string range = header_of(answer, "content-range");
  return range.starts_with(kBytes) &&
         leading_number(std::string_view(range).substr(kBytes.size()), from + 1) == from;
}

bool is_busy(long status) {
  return status == kTooMany || status >= 500;
}

}  // namespace

HubClient::HubClient(HubSettings settings, HubWatch& watch)
    : settings_(std::move(settings)), watch_(watch) {}

std::string HubClient::url_of(const std::string& repository,
                              const std::string& commit,
                              const std::string& path) const {
  return fmt::format("{}/{}/resolve/{}/{}", settings_.endpoint, repository, commit, url_path(path));
}

Result<HubListing> HubClient::list(const std::string& repository, const std::string& revision) {
  std::string text;
  HubFetch request = {
      .url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", settings_.endpoint, repository,
                         url_segment(revision)),
      .repository = repository,
      .name = revision == "main" ? repository : repository + ", revision " + revision,
      .from = [] { return std::uint64_t{0}; },
      .take =
          [&](std::string_view bytes) {
            text += bytes;
            return text.size() <= kMostListingBytes;
          },
      .restart =
          [&] {
            text.clear();
            return true;
          }};
  KAKEYA_TRY(fetch(request));
  if (text.size() > kMostListingBytes) {
    return data_loss("{}: expected a listing of at most {} MiB", repository,
                     kMostListingBytes >> 20);
  }
  auto listing = parse_hub_listing(text);
  if (listing) return listing;
  return data_loss("{}: the listing of {} cannot be used: {}", repository, settings_.endpoint,
                   listing.error().message());
}

Status HubClient::wait(double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kStep(50);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    if (watch_.stopped()) return error(StatusCode::kCancelled, "stopped");
    std::this_thread::sleep_for(kStep);
  }
  return {};
}

Unexpected HubClient::refusal_of(const HubFetch& fetch, const HttpAnswer& answer) const {
  const std::string word = header_of(answer, "x-error-code");
  const std::string page = settings_.endpoint + "/" + fetch.repository;
  if (answer.status == kUnauthorized || answer.status == kForbidden) {
    const char* const token = settings_.token.empty()
                                  ? "no token is set: HF_TOKEN has none"
                                  : "the token in use (HF_TOKEN or the token file) may not see it";
    if (word == "GatedRepo") {
      return error(StatusCode::kFailedPrecondition, "{}: its terms have to be accepted at {}; {}",
                   fetch.name, page, token);
    }
    return error(StatusCode::kFailedPrecondition,
                 "{}: refused with {}: there is no such model, or it is private, or its terms have "
                 "to be accepted at {}; {}",
                 fetch.name, answer.status, page, token);
  }
  if (answer.status == kMissing) {
    return error(StatusCode::kNotFound, "{}: {} has no such {}", fetch.name, settings_.endpoint,
                 word == "RevisionNotFound" ? "revision" : "model, revision or file");
  }
  return error(StatusCode::kUnavailable, "{}: {} answered with status {}{}", fetch.name,
               settings_.endpoint, answer.status,
               answer.headers.contains("x-error-message")
                   ? ": " + printable(header_of(answer, "x-error-message"))
                   : "");
}

Result<bool> HubClient::try_once(const HubFetch& fetch, double& wait_seconds, std::string& reason) {
  const std::uint64_t from = fetch.from();
  bool begun = false;
  bool misplaced = false;
  const auto take = [&](const HttpAnswer& so_far, std::string_view bytes) {
    if (!begun) {
      begun = true;
      const bool whole = so_far.status != kPartialContent;
      misplaced = !whole && !begins_at(so_far, from);
      if (misplaced || (whole && from > 0 && !fetch.restart())) return false;
    }
    return fetch.take(bytes);
  };
  const HttpAnswer answer = http_.get(
      {.url = fetch.url, .token = settings_.token, .from = from, .take = take, .stopped = [&] {
         return watch_.stopped();
       }});
  if (watch_.stopped()) return error(StatusCode::kCancelled, "stopped");
  if (answer.status == kBeyondTheEnd || misplaced) {
    if (from == 0 || !fetch.restart()) return refusal_of(fetch, answer);
    reason = "the server has no such range";
    return false;
  }
  if (is_busy(answer.status)) {
    const double asked = static_cast<double>(leading_number(header_of(answer, "retry-after"), 0));
    if (asked > kLongestWait) {
      return error(StatusCode::kUnavailable, "{}: {} takes no more requests for {} s", fetch.name,
                   settings_.endpoint, asked);
    }
    wait_seconds = std::max(wait_seconds, asked);
    reason = fmt::format("status {}", answer.status);
    return false;
  }
  if (answer.status >= 300) return refusal_of(fetch, answer);
  if (answer.problem.empty()) return true;
  reason = printable(answer.problem);
  if (answer.may_pass) return false;
  return error(StatusCode::kUnavailable, "{}: {}", fetch.name, reason);
}

Status HubClient::fetch(const HubFetch& fetch) {
  double seconds = kFirstWait;
  for (int tries = 1;; ++tries) {
    const std::uint64_t before = fetch.from();
    double wait_seconds = seconds;
    std::string reason;
    KAKEYA_ASSIGN_OR_RETURN(const bool complete, try_once(fetch, wait_seconds, reason));
    if (complete) return {};
    if (fetch.from() >= before + kWorthwhile) {
      tries = 0;
      wait_seconds = seconds = kFirstWait;
    }
    if (tries == kMostTries) {
      return error(StatusCode::kUnavailable, "{}: gave up after {} tries: {}", fetch.name,
                   kMostTries, reason);
    }
    watch_.says(fmt::format("{}: {}; again in {:.1f} s", fetch.name, reason, wait_seconds));
    KAKEYA_TRY(wait(wait_seconds));
    seconds *= 2;
  }
}

}  // namespace kakeya::cli
