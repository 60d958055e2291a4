#include "eval_common.h"

#include <ctime>

#include "base/status.h"
#include "kakeya/version.h"

namespace kakeya::cli {
namespace {

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  ::gmtime_r(&now, &time);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &time);
  return text;
}

}  // namespace

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
                                       const ModelFlags& flags,
                                       const EngineImpl& engine) {
  return {{"schema", schema},
          {"version", kVersion},
          {"date", now_utc()},
          {"backend", engine.backend_name()},
          {"threads", engine.num_threads()},
          {"compute", flags.compute},
          {"model", flags.model.empty() ? "demo model" : flags.model}};
}

}  // namespace kakeya::cli
