// Results of tools in a conversation, and the calls that they answer.
#pragma once

#include <cstdint>
#include <vector>

#include "kakeya/chat.h"
#include "wire/http/json_reader.h"

namespace kakeya::wire {

// How an API says which call a result answers: kId, where a result belongs to a call in any case,
// or kName, where a tool's name is enough.
enum class ResultsBy : std::uint8_t { kId, kName };

// Gives each message of role tool the id and the name of its call, where it does not say them:
// templates want either. One that says neither answers the first call that no other one answers.
// Leaves out those in front of all that was said, whose calls a client has cut off. Refuses, by its
// place among `messages`, another one that answers no call.
void match_results(JsonReader& reader, ResultsBy by, std::vector<ChatMessage>& messages);

}  // namespace kakeya::wire
