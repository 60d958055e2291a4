// Settings of the Hub's own libraries, which its users have made already.
#pragma once

#include <string>

#include "cli/models/model_places.h"
#include "kakeya/status.h"

namespace kakeya::cli {

struct HubSettings {
  std::string endpoint;  // without a slash at its end
  std::string token;     // empty: none
  std::string cache;     // the folder of models--OWNER--NAME
};

// HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME. Errors:
// kFailedPrecondition if HF_HUB_OFFLINE is set; kInvalidArgument for an endpoint or a token that is
// none, and where no variable says where a cache might be.
Result<HubSettings> hub_settings(const Environment& environment);
// Those of this process.
Result<HubSettings> hub_settings();

}  // namespace kakeya::cli
