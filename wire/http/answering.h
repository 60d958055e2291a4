// Answers requests that a model is asked, over HTTP: what every dialect's routes share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/scheduler.h"
#include "service/answer_plan.h"
#include "service/answer_request.h"
#include "service/embedding_request.h"
#include "service/refusal.h"
#include "service/text_runs.h"
#include "wire/http/answer_writer.h"
#include "wire/http/exchange.h"
#include "wire/http/session_fields.h"

namespace kakeya::wire {

// A request that the scheduler can be given.
struct PreparedAnswer {
  const service::AnswerRequest& wish;
  service::AnswerPlan plan;
  std::vector<Request> requests = {};  // one a prompt, or that of the conversation
  std::int64_t prompt_tokens = 0;      // of all
  std::string id = {};                 // "KIND-" and what no other answer has
  SessionFields session = {};          // that the client says it belongs to
};

// Checks, plans and tokenises what a client wants, in this order: what is refused has cost nothing
// yet. Errors: kNotFound for another model than the one that is served; kInvalidArgument for a
// priority that the client's key has not; as AnswerPlanner::plan() and make_requests(); as
// Sessions::tokens() for a session that cannot be read. `id_prefix`: what the answer's id begins
// with.
service::Outcome<PreparedAnswer> prepare(Exchange& exchange,
                                         const service::AnswerRequest& wish,
                                         std::string_view id_prefix);

// Runs what was prepared, and writes the answers: whole, or as a stream of events if
// AnswerRequest::stream. A session that the client names has the prompt's and the answer's tokens
// then, or the answer says why not (add_not_kept()); one that it ends is gone, with its keys and
// values. Returns whether the connection goes on.
bool answer(Exchange& exchange, const PreparedAnswer& prepared, AnswerWriter& writer);

// Counts the tokens of a request's prompt, which is not run. Errors: kNotFound for another model;
// as make_requests().
service::Outcome<std::int64_t> count_prompt(Exchange& exchange, const service::AnswerRequest& wish);

// Runs texts behind which nothing is generated; their results in order. The exchange is being
// watched. Errors: as TextRuns::advance(); kCancelled if the client has gone.
service::Outcome<std::vector<service::TextResult>> run_texts(Exchange& exchange,
                                                             std::vector<Request> texts);

struct Embedded {
  std::int64_t tokens = 0;  // of all texts
  std::vector<service::TextResult> results;
};

// Answers a request for embeddings by what `write` makes of the vectors. Returns whether the
// connection goes on.
bool embed(Exchange& exchange,
           const service::EmbeddingRequest& wish,
           const std::function<std::string(const Embedded&)>& write);

}  // namespace kakeya::wire
