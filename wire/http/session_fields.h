// Fields of a request's header by which agents and routers name the session that it belongs to.
#pragma once

#include <string>

#include "service/refusal.h"
#include "wire/http/admission.h"

namespace kakeya::wire {

struct SessionFields {
  std::string id = {};  // empty: the request belongs to none
  std::string parent = {};
  // Nothing of the session is asked for after this request.
  bool is_final = false;
};

// Reads X-Dynamo-Session-ID, X-Claude-Code-Session-ID, Session-ID or X-Session-ID, the first that
// is there, X-Dynamo-Parent-Session-ID and X-Dynamo-Session-Final. Errors: kInvalidArgument for a
// value that is neither true nor false, for an end of no session, and for what is no session's id.
service::Outcome<SessionFields> read_session_fields(const HttpFields& fields);

}  // namespace kakeya::wire
