// POST /infill, as llama-server has it for editors
// (https://github.com/ggml-org/llama.cpp, tools/server/README.md): what stands between two texts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "service/answer.h"
#include "service/answer_request.h"
#include "service/refusal.h"
#include "wire/http/answer_writer.h"

namespace kakeya::openai {

struct InfillRequest {
  service::AnswerRequest answer;
  std::vector<std::string> response_fields = {};  // that the client wants alone; empty: all
};

// Reads a body. Pure. Fields of its own: input_prefix, input_suffix, input_extra, prompt, samplers,
// n_indent, t_max_predict_ms, response_fields; all others are those of /v1/completions. Errors: as
// read_completion_request(); also for what an answer to /infill cannot have.
service::Outcome<InfillRequest> read_infill_request(std::string_view body);

// Writes one answer. Thread: of its request; `request` must outlive it.
class InfillWriter final : public wire::AnswerWriter {
 public:
  InfillWriter(const InfillRequest& request, std::string model)
      : request_(request), model_(std::move(model)) {}

  // Events: {"content", "stop": false} for each piece, then one that says how it ended.
  std::string begin(int index) override;
  std::string piece(int index, const service::AnswerPiece& piece) override;
  std::string end(int index, const service::AnswerEnd& end) override;
  std::string done(const service::Usage& usage) override;
  std::string error(const service::Refusal& refusal) override;

  std::string whole(const std::vector<service::WholeAnswer>& answers,
                    const service::Usage& usage) override;

 private:
  std::string last(std::string_view content, const service::Usage& usage) const;

  const InfillRequest& request_;
  const std::string model_;
  service::AnswerEnd end_ = {};
};

}  // namespace kakeya::openai
