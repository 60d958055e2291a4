// Responses that were made, kept by the service: clients ask for them again and go on from them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kakeya/chat.h"
#include "kakeya/status.h"
#include "service/sessions/kept_texts.h"

namespace kakeya::openai {

struct StoredResponse {
  std::string json;                   // the response as its client got it
  std::vector<ChatMessage> messages;  // the conversation to its end, without instructions
  std::size_t first_input = 0;        // of the messages: the first one of its request
  // The items of its output as JSON, by their ids.
  std::vector<std::pair<std::string, std::string>> items = {};
};

// Finds a response that whoever asks may see; null: there is none.
using FindResponse = std::function<std::shared_ptr<const StoredResponse>(std::string_view id)>;

// Thread-safe. The texts must outlive it; their limits are its own.
class ResponseStore {
 public:
  explicit ResponseStore(service::KeptTexts& texts) : texts_(texts) {}

  // Keeps a response for its owner: the name of a key, or an address. Errors: as KeptTexts::put().
  Status put(const std::string& id, const std::string& owner, const StoredResponse& response);
  // The owner's response of this id; null: there is none. Errors: as Database::run(); kDataLoss for
  // one that cannot be read.
  Result<std::shared_ptr<const StoredResponse>> find(std::string_view id,
                                                     const std::string& owner) const;
  // Errors: as KeptTexts::remove().
  Status erase(const std::string& id, const std::string& owner);

 private:
  service::KeptTexts& texts_;
};

}  // namespace kakeya::openai
