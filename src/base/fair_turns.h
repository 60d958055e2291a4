// Turns of clients, so that whoever asks for much waits behind what he asked for himself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace kakeya {

// A client's next turn is the one behind its last, or behind whoever began last if that is later
// (start-time fair queueing); lower ones come first. One thread at a time.
class FairTurns {
 public:
  // Gives the client its next turn.
  std::uint64_t next(const std::string& client) {
    if (last_.size() > kMostClients) {
      std::erase_if(last_, [this](const auto& entry) { return entry.second <= begun_; });
    }
    std::uint64_t& last = last_[client];
    last = std::max(last, begun_) + 1;
    return last;
  }
  // Whoever has this turn begins.
  void begin(std::uint64_t turn) { begun_ = std::max(begun_, turn); }

 private:
  // Clients that are remembered though none of their turns is to come.
  static constexpr std::size_t kMostClients = 4096;

  std::uint64_t begun_ = 0;
  std::map<std::string, std::uint64_t> last_ = {};  // of each client that waits, and some more
};

}  // namespace kakeya
