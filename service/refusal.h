// How a request is refused, whatever carries it.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "kakeya/status.h"

namespace kakeya::service {

// Why a request is not answered.
struct Refusal {
  StatusCode status = StatusCode::kInvalidArgument;
  std::string message;         // what, expected, got
  std::string parameter = {};  // the field that it is about; empty: none
  std::string code = {};       // a word for programs ("context_length_exceeded"); empty: none
};

template <typename T>
using Outcome = tl::expected<T, Refusal>;

// Options of the library that have a field of the same name are called by that alone, which becomes
// the parameter.
Refusal refusal_of(const Error& error);

}  // namespace kakeya::service
