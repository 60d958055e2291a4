// Parts of a conversation that a model here cannot be shown: the one table of what stands for them
// where the client cannot leave them out, in results of tools and in earlier answers. What a user
// or the system says is not stood in for: it is refused by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kakeya::wire {

// The words in place of a part, or an item, of this type; empty: it is left out. Nothing for types
// that are not known.
std::optional<std::string_view> stand_in(std::string_view type);

// Appends these words as a line of their own.
void append_stand_in(std::string& text, std::string_view words);

}  // namespace kakeya::wire
