// Answers that begin with their prompts.
#pragma once

#include <vector>

#include "kakeya/scheduler.h"
#include "kakeya/tokenizer.h"
#include "service/answer.h"
#include "service/answer_request.h"
#include "service/text_runs.h"

namespace kakeya::service {

// The first piece of the answers to each prompt: the prompt. Tokens that were put in front of a
// text are left out. `prepared`: make_requests(), one for each prompt of `wish`.
std::vector<AnswerPiece> echoes_of(const Tokenizer& tokenizer,
                                   const AnswerRequest& wish,
                                   const std::vector<Request>& prepared);

// The requests that score the prompts, if log-probabilities are wanted; those of prompts of one
// token are left out, for nothing is known of a first token.
std::vector<Request> score_requests(const AnswerRequest& wish,
                                    const std::vector<Request>& prepared);

// Adds the results of score_requests() to the pieces that echoes_of() made of the same requests.
void add_scores(const std::vector<TextResult>& scored,
                const std::vector<Request>& prepared,
                std::vector<AnswerPiece>& pieces);

}  // namespace kakeya::service
