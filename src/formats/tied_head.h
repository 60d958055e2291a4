// A head that a checkpoint holds although the configuration ties it to the embedding.
#pragma once

#include "formats/tensor_request.h"
#include "kakeya/status.h"

namespace kakeya {

// Compares the head, if the tensors of a model with a tied head include one, with the embedding: it
// must be a copy, for programs differ in which of the two they use. Reads both where there are
// both. Errors: kInvalidArgument.
Status check_tied_head(const ResolvedTensors& tensors);

}  // namespace kakeya
