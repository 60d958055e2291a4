#include "wire/anthropic/routes.h"

#include <fmt/format.h>

#include "service/answer_request.h"
#include "service/service.h"
#include "wire/anthropic/messages_read.h"
#include "wire/anthropic/messages_write.h"
#include "wire/http/answering.h"
#include "wire/http/exchange.h"

namespace kakeya::anthropic {
namespace {

using boost::beast::http::verb;
using wire::Exchange;

bool serve_messages(Exchange& exchange) {
  const auto wish = read_messages_request(exchange.body());
  if (!wish) return exchange.refuse(wish.error());
  const auto prepared = wire::prepare(exchange, *wish, "msg_");
  if (!prepared) return exchange.refuse(prepared.error());
  MessagesWriter writer(prepared->id, exchange.service().options().model_name,
                        prepared->prompt_tokens, wish->stop_strings);
  return wire::answer(exchange, *prepared, writer);
}

bool serve_count(Exchange& exchange) {
  const auto wish = read_count_request(exchange.body());
  if (!wish) return exchange.refuse(wish.error());
  const auto tokens = wire::count_prompt(exchange, *wish);
  if (!tokens) return exchange.refuse(tokens.error());
  return exchange.reply(200, fmt::format(R"({{"input_tokens":{}}})", *tokens));
}

}  // namespace

wire::Dialect dialect() {
  static constexpr wire::Route kRoutes[] = {{verb::post, "/v1/messages", serve_messages},
                                            {verb::post, "/v1/messages/count_tokens", serve_count}};
  return {kRoutes, error_json, "/v1/messages"};
}

}  // namespace kakeya::anthropic
