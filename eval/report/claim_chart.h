// Claims as a picture.
#pragma once

#include <string>

#include "eval/report/report_claims.h"

namespace kakeya::eval {

// "0.00517", "27.1", "12500"
std::string claim_number(double value);

// An SVG element for a page: a bar a claim, its interval as a line, its samples as dots, an axis
// with the unit. Where values are more than 200 times apart the axis is logarithmic, and says so.
// Colours are the page's: classes bar, whisker, dot, axis, reference. Values that are not finite
// have no bar.
std::string claim_chart(const ClaimGroup& group);

}  // namespace kakeya::eval
