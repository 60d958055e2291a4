// The table of routes: the paths that clients ask for, and who answers.
#pragma once

#include <boost/beast/http/verb.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "service/refusal.h"

namespace kakeya::wire {

class Exchange;

// Answers a request. Returns whether the connection goes on.
using Handler = bool (*)(Exchange& exchange);

// The body of a response that says why a request is refused.
using ErrorBody = std::string (*)(const service::Refusal& refusal);

struct Route {
  // get, which answers HEAD too, post, whose body is JSON, or delete_.
  boost::beast::http::verb verb;
  std::string_view path;  // "/props"; "/models/*": any name in place of the star
  Handler handle;
  bool is_open = false;         // needs no key
  bool is_quiet = false;        // is asked for all the time, which says little
  bool takes_any_type = false;  // of a body, from who is no page of another site
  bool needs_model = true;      // a model is loaded for it; else it tells of all of them
};

// The routes that clients of one API ask for, and how it says what is wrong. A path may have a
// route for each verb.
struct Dialect {
  std::span<const Route> routes;
  ErrorBody error_body;
  // Paths that begin so are this API's, known or not; empty: none.
  std::string_view prefix = {};
};

// Immutable; from any thread.
class RouteTable {
 public:
  // The routes of dialects, at least one, and those of an operator (operator_routes.h). What
  // belongs to no dialect, by its route or its prefix, is refused as the first one does. The routes
  // must outlive the table.
  explicit RouteTable(std::vector<Dialect> dialects);

  struct Found {
    const Route* route = nullptr;  // null: there is none
    ErrorBody error_body;
  };
  // The route of a path for this verb, or one for another verb if it has none for this one.
  Found find(std::string_view path,
             boost::beast::http::verb verb = boost::beast::http::verb::get) const;

  // The verbs of a path for the field Allow; those of a page's file if it has no route.
  std::string allowed_verbs(std::string_view path) const;

  // A path that is there, for a message.
  std::string_view example() const { return dialects_.front().routes.front().path; }

 private:
  std::vector<Dialect> dialects_;
};

// Answers a request, by its route or with why there is none. Returns whether the connection goes
// on.
bool dispatch(Exchange& exchange);

}  // namespace kakeya::wire
