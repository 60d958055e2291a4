// Text from a file or a request made safe to put into a one-line message.
#pragma once

#include <string>
#include <string_view>

namespace kakeya {

// `text` with bytes outside printable ASCII written as \xNN, cut after 160 characters. Names from a
// checkpoint may hold line breaks, terminal escapes or megabytes.
std::string printable(std::string_view text);

}  // namespace kakeya
