#include "wire/http/operator_routes.h"

#include <string>

#include "service/json_text.h"
#include "service/model_pool.h"
#include "wire/http/exchange.h"

namespace kakeya::wire {
namespace {

using boost::beast::http::verb;

bool reply_health(Exchange& exchange, const service::Health& health) {
  if (health.reason.empty()) return exchange.reply(200, R"({"status":"ok"})");
  return exchange.reply(health.is_well() ? 200 : 503,
                        service::json_text({{"status", health.status}, {"reason", health.reason}}));
}

bool serve_readiness(Exchange& exchange) {
  return reply_health(exchange, exchange.models().health());
}

bool serve_liveness(Exchange& exchange) {
  return reply_health(exchange, exchange.models().liveness());
}

bool serve_metrics(Exchange& exchange) {
  return exchange.reply(200, exchange.models().metrics_text(), {}, "text/plain; version=0.0.4");
}

}  // namespace

std::span<const Route> operator_routes() {
  static constexpr Route kRoutes[] = {{.verb = verb::get,
                                       .path = "/health",
                                       .handle = serve_readiness,
                                       .is_open = true,
                                       .is_quiet = true,
                                       .needs_model = false},
                                      {.verb = verb::get,
                                       .path = "/readyz",
                                       .handle = serve_readiness,
                                       .is_open = true,
                                       .is_quiet = true,
                                       .needs_model = false},
                                      {.verb = verb::get,
                                       .path = "/livez",
                                       .handle = serve_liveness,
                                       .is_open = true,
                                       .is_quiet = true,
                                       .needs_model = false},
                                      {.verb = verb::get,
                                       .path = "/metrics",
                                       .handle = serve_metrics,
                                       .is_quiet = true,
                                       .needs_model = false}};
  return kRoutes;
}

bool serve_page(Exchange& exchange, const PageFile& page) {
  return exchange.reply(200, std::string(page.text),
                        {{"Content-Security-Policy", std::string(kPagePolicy)},
                         {"X-Content-Type-Options", "nosniff"},
                         {"Referrer-Policy", "no-referrer"},
                         {"Cache-Control", "no-cache"}},
                        page.content_type);
}

}  // namespace kakeya::wire
