// The trace that a request is a part of, as its client says (W3C Trace Context).
#pragma once

#include <string_view>

namespace kakeya::service {

// The trace's id, 32 hexadecimal digits, from a field `traceparent`, which the result points into;
// empty for a text that is none.
std::string_view trace_id_of(std::string_view traceparent);

}  // namespace kakeya::service
