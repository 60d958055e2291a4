// How a request is refused, and the one table from errors of the library to answers of HTTP.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "kakeya/status.h"

namespace kakeya::server {

// Why a request is not answered, as OpenAI's clients want to know it.
struct Refusal {
  StatusCode status = StatusCode::kInvalidArgument;
  std::string message;         // what, expected, got
  std::string parameter = {};  // the field that it is about; empty: none
  std::string code = {};       // a word for programs ("context_length_exceeded"); empty: none
};

template <typename T>
using Outcome = tl::expected<T, Refusal>;

// The HTTP form of an error.
struct HttpError {
  unsigned status = 500;  // of HTTP
  std::string_view type;  // "invalid_request_error" and its like
};

HttpError http_error(StatusCode status);

// Options of the library that have a field of the same name are called by that alone, which becomes
// the parameter.
Refusal refusal_of(const Error& error);

}  // namespace kakeya::server
