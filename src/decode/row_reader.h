// Takes what passes make of a prompt's rows, where that is what somebody wants of a text.
#pragma once

#include <span>

#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya {

class RowReader {
 public:
  virtual ~RowReader() = default;

  // The last hidden row [D] of the token at `position`, or its logits [V]: which of both is up to
  // whoever runs the pass. Called for rising positions, within a turn of the workspace. Its error
  // ends what is read for.
  virtual Status read(Position position, std::span<const float> row) = 0;
};

}  // namespace kakeya
