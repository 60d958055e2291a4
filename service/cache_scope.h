// Who shares the prefix cache with whom.
#pragma once

#include <string>
#include <string_view>

namespace kakeya::service {

struct CacheScopes {
  bool per_owner = true;  // false: all owners share one

  // The scope (SessionOptions::cache_scope) of an owner's requests that have this salt, "" for
  // none: a hash, for it stands in files.
  std::string of(std::string_view owner, std::string_view salt = {}) const;
};

}  // namespace kakeya::service
