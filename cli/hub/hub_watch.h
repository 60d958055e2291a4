// Progress of a fetch, for whoever shows it.
#pragma once

#include <cstdint>
#include <string_view>

#include "cli/hub/hub_listing.h"

namespace kakeya::cli {

class HubWatch {
 public:
  HubWatch() = default;
  virtual ~HubWatch() = default;
  HubWatch(const HubWatch&) = delete;
  HubWatch& operator=(const HubWatch&) = delete;

  // True if the user wants no more of it.
  virtual bool stopped() = 0;
  // So much of a file is here.
  virtual void moves(const HubFile& file, std::uint64_t done) = 0;
  // A file is here; `fetched`: it was not before.
  virtual void ends(const HubFile& file, bool fetched) = 0;
  // A line for the user: which of several is fetched, why it takes longer.
  virtual void says(std::string_view text) = 0;
};

}  // namespace kakeya::cli
