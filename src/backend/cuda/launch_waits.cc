#include "backend/cuda/launch_waits.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "backend/cuda/launch_accesses.h"

namespace kakeya::cuda {
namespace {

// The launches that each one waits for, one after the other.
class Waits {
 public:
  explicit Waits(const LaunchList& launches) : launches_(launches) {}

  // Returns those of the next launch: of all that it conflicts with each is among them, or one of
  // them waits for it.
  const std::vector<std::uint32_t>& next() {
    waits_.clear();
    const std::size_t i = accesses_.size();
    accesses_.emplace_back(launches_, i);
    Place own = {0, true};
    for (std::size_t before = i; before > 0; --before) {
      const std::size_t apart = i - before;
      if (apart >= kMostApart) {
        own = wait_for_all(i);
        break;
      }
      const Place& place = places_[before - 1];
      if ((own.behind >> apart & 1U) == 0) {
        if (!accesses_[before - 1].conflicts_with(accesses_[i])) {
          own.is_behind_all = false;
          continue;
        }
        waits_.push_back(static_cast<std::uint32_t>(before - 1));
        own.behind |= std::uint64_t{1} << apart | place.behind << apart << 1;
      }
      if (place.is_behind_all) break;  // so the launch is behind those before it, too
    }
    places_.push_back(own);
    return waits_;
  }

 private:
  static constexpr std::size_t kMostApart = 60;
  struct Place {
    std::uint64_t behind;  // bit i: it comes behind the launch that is i + 1 before it
    bool is_behind_all;
  };

  Place wait_for_all(std::size_t i) {
    waits_.clear();
    for (std::size_t before = 0; before < i; ++before) {
      waits_.push_back(static_cast<std::uint32_t>(before));
    }
    return {~std::uint64_t{0}, true};
  }

  const LaunchList& launches_;
  std::vector<LaunchAccesses> accesses_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> waits_;
};

}  // namespace

void set_waits(LaunchList& launches) {
  Waits waits(launches);
  LaunchList with_waits;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    with_waits.add(launches.kernel(i), launches.shape(i), launches.parameters(i));
    with_waits.wait_for(waits.next());
  }
  launches = std::move(with_waits);
}

}  // namespace kakeya::cuda
