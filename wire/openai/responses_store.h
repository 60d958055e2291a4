// Responses that were made, kept in memory: clients ask for them again and go on from them.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kakeya/chat.h"
#include "wire/http/routes.h"

namespace kakeya::openai {

struct StoredResponse {
  std::string json;                   // the response as its client got it
  std::vector<ChatMessage> messages;  // the conversation to its end, without instructions
  // The items of its output as JSON, by their ids.
  std::vector<std::pair<std::string, std::string>> items = {};
};

// Finds a response that whoever asks may see; null: there is none.
using FindResponse = std::function<std::shared_ptr<const StoredResponse>(std::string_view id)>;

// Thread-safe. The oldest responses go first where there are too many.
class ResponseStore final : public wire::DialectState {
 public:
  static constexpr std::size_t kMostResponses = 1024;
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;

  explicit ResponseStore(std::size_t most_responses = kMostResponses,
                         std::size_t most_bytes = kMostBytes)
      : most_responses_(most_responses), most_bytes_(most_bytes) {}

  // Keeps a response for its owner: the name of a key, or an address. One that is larger than all
  // may be is not kept.
  void put(std::string id, std::string owner, StoredResponse response);
  // The owner's response of this id; null: there is none.
  std::shared_ptr<const StoredResponse> find(std::string_view id, std::string_view owner) const;
  // Returns whether the owner had it.
  bool erase(std::string_view id, std::string_view owner);

  std::size_t size() const;
  std::size_t bytes() const;  // of all texts

 private:
  struct Entry {
    std::string owner;
    std::shared_ptr<const StoredResponse> response;
    std::size_t bytes = 0;
    std::list<std::string>::iterator place;  // in order_
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  void remove(Entries::iterator entry);

  const std::size_t most_responses_;
  const std::size_t most_bytes_;
  mutable std::mutex mutex_;
  // Under mutex_.
  Entries entries_ = {};
  std::list<std::string> order_ = {};  // ids, the oldest first
  std::size_t bytes_ = 0;
};

}  // namespace kakeya::openai
