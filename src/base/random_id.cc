#include "base/random_id.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "base/check.h"

namespace kakeya {

std::string random_id(std::string_view prefix) {
  std::array<std::uint64_t, 2> bits;
  // So few bytes are refused by no system that has the call.
  KAKEYA_CHECK(::getentropy(bits.data(), sizeof(bits)) == 0);
  return fmt::format("{}{:016x}{:016x}", prefix, bits[0], bits[1]);
}

}  // namespace kakeya
