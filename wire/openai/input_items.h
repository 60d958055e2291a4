// GET /v1/responses/ID/input_items: what a stored response was asked, as items.
#pragma once

#include <string>
#include <string_view>

#include "service/refusal.h"
#include "wire/openai/responses_store.h"

namespace kakeya::openai {

// One page of the items of the request that made the response `id`: messages, thoughts, calls and
// their results, each under an id that is the same every time. What came before, by
// previous_response_id, is not among them, and neither are instructions. Calls are function calls,
// under the names that the model was shown.
//
// `query` is that of the target: "limit" (1 to 100; 20), "order" ("asc" or "desc", the default) and
// "after", the id of an item. "include" adds nothing, for items are whole. Refuses other members.
service::Outcome<std::string> input_items_json(std::string_view id,
                                               const StoredResponse& response,
                                               std::string_view query);

}  // namespace kakeya::openai
