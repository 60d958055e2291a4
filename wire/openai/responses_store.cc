#include "wire/openai/responses_store.h"

#include <iterator>

namespace kakeya::openai {
namespace {

// A little more than the texts, so that many small ones count too.
std::size_t bytes_of(const StoredResponse& response) {
  std::size_t bytes = sizeof(StoredResponse) + response.json.size();
  for (const auto& [id, json] : response.items) bytes += sizeof(json) + id.size() + json.size();
  for (const ChatMessage& message : response.messages) {
    bytes += sizeof(ChatMessage) + message.content.size() + message.reasoning.size() +
             message.tool_call_id.size() + message.name.size();
    for (const ToolCall& call : message.tool_calls) {
      bytes += sizeof(ToolCall) + call.name.size() + call.arguments.size() + call.id.size();
    }
  }
  return bytes;
}

}  // namespace

void ResponseStore::put(std::string id, std::string owner, StoredResponse response) {
  const std::size_t bytes = bytes_of(response);
  auto kept = std::make_shared<const StoredResponse>(std::move(response));
  const std::lock_guard lock(mutex_);
  if (const auto old = entries_.find(id); old != entries_.end()) remove(old);
  if (bytes > most_bytes_ || most_responses_ == 0) return;
  while (entries_.size() >= most_responses_ || bytes_ + bytes > most_bytes_) {
    remove(entries_.find(order_.front()));
  }
  order_.push_back(id);
  bytes_ += bytes;
  entries_.emplace(std::move(id), Entry{.owner = std::move(owner),
                                        .response = std::move(kept),
                                        .bytes = bytes,
                                        .place = std::prev(order_.end())});
}

std::shared_ptr<const StoredResponse> ResponseStore::find(std::string_view id,
                                                          std::string_view owner) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found != entries_.end() && found->second.owner == owner ? found->second.response : nullptr;
}

bool ResponseStore::erase(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.owner != owner) return false;
  remove(found);
  return true;
}

std::size_t ResponseStore::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void ResponseStore::remove(Entries::iterator entry) {
  bytes_ -= entry->second.bytes;
  order_.erase(entry->second.place);
  entries_.erase(entry);
}

}  // namespace kakeya::openai
