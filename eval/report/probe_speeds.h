// The bandwidth of memory around a run, in reports of runs that take minutes.
#pragma once

#include "eval/report/describe.h"

namespace kakeya::eval {

// Gigabytes a second that a probe read.
struct ProbeSpeeds {
  double before = 0.0;
  double after = 0.0;
};

template <typename Visitor, MaybeConst<ProbeSpeeds> Speeds>
void describe(Visitor& visitor, Speeds& speeds) {
  visitor.field("before", speeds.before, FieldRole::kStated);
  visitor.field("after", speeds.after, FieldRole::kStated);
}

}  // namespace kakeya::eval
