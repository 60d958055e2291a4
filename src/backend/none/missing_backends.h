// Backends that this build was made without, so that a user who asks for one is told why.
#pragma once

#include <span>
#include <string_view>

namespace kakeya::none {

struct MissingBackend {
  std::string_view name;
  std::string_view reason;
};

std::span<const MissingBackend> missing_backends();

}  // namespace kakeya::none
