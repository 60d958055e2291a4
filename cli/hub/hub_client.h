// The Hub's interface over HTTP: requests, tries and errors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/hub/http.h"
#include "cli/hub/hub_listing.h"
#include "cli/hub/hub_settings.h"
#include "cli/hub/hub_watch.h"
#include "kakeya/status.h"

namespace kakeya::cli {

// One thing that is asked of the Hub, in several requests if need be.
struct HubFetch {
  std::string url;
  std::string repository;
  std::string name;                            // for messages
  std::function<std::uint64_t()> from;         // the first byte that is missing
  std::function<bool(std::string_view)> take;  // its bytes; false: no more of them are wanted
  std::function<bool()> restart;               // the bytes begin at the first one
};

class HubClient {
 public:
  HubClient(HubSettings settings, HubWatch& watch);

  // Files of a revision. Errors: those of fetch(), kDataLoss for an answer that cannot be used.
  Result<HubListing> list(const std::string& repository, const std::string& revision);
  // The address of a file of a commit.
  std::string url_of(const std::string& repository,
                     const std::string& commit,
                     const std::string& path) const;
  // Asks until everything is here: connections that break are taken up where they ended, a busy or
  // failing server is waited for, both a bounded number of times. Errors: kNotFound,
  // kFailedPrecondition for what the token may not see, kUnavailable, kCancelled.
  Status fetch(const HubFetch& fetch);

 private:
  // Errors: kCancelled.
  Status wait(double seconds);
  Unexpected refusal_of(const HubFetch& fetch, const HttpAnswer& answer) const;
  // Asks once: true if all is here, false to ask again after `wait_seconds`, for the reason.
  Result<bool> try_once(const HubFetch& fetch, double& wait_seconds, std::string& reason);

  HubSettings settings_;
  HubWatch& watch_;
  HttpClient http_;
};

}  // namespace kakeya::cli
