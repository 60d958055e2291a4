#include "eval_common.h"

#include "base/status.h"

namespace kakeya::cli {

Result<std::string> data_folder(const std::string& named) {
  if (!named.empty()) return named;
  std::string folder = find_shared_folder("eval/data", "humaneval.jsonl");
  if (!folder.empty()) return folder;
  return error(StatusCode::kNotFound,
               "the prompt sets were not found; name their folder: --data DIR");
}

Result<std::vector<eval::PromptText>> read_prompts(const std::string& path) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  return eval::parse_prompts(text, path == "-" ? "standard input" : path);
}

nlohmann::ordered_json provenance_json(const std::string& schema,
                                       const RunConditions& conditions,
                                       const ModelFlags& flags,
                                       const EngineImpl& engine) {
  return provenance_json(schema, conditions, engine,
                         flags.model.empty() ? "demo model" : flags.model, flags.compute);
}

}  // namespace kakeya::cli
