#include "eval/report/report_tables.h"

namespace kakeya::eval {

const std::string_view kTaskFields = R"(
options/task text checked
options/max_tokens count stated
options/limit count stated
problems_sha256 hash result
python?/version text stated
python?/seconds seconds stated
python?/network_blocked flag checked
python?/files_blocked flag checked
python?/unconfined flag checked
rows/*/id text measured
rows/*/prompt_sha256 hash result
rows/*/sha256 hash result
rows/*/tokens count measured
rows/*/decode_seconds seconds measured
rows/*/verdict text measured
rows/*/detail? text stated
rows/*/expected? text measured
rows/*/got? text measured
summary/problems count checked
summary/passed count checked
summary/failed count checked
summary/timed_out count checked
summary/crashed count checked
summary/no_answer count checked
summary/score share checked
summary/low share checked
summary/high share checked
summary/tokens count checked
summary/decode_seconds seconds checked
summary/tokens_per_second number checked
)";

const std::string_view kTaskPassFields = R"(
draft text stated
options/prompt text checked
options/draft_length text stated
options/compare_plain flag checked
rows/*/prompt_tokens count result
rows/*/plain_sha256? hash measured
rows/*/rounds count measured
rows/*/drafted count measured
rows/*/accepted count measured
rows/*/prefill_seconds seconds stated
summary/rounds count checked
summary/drafted count checked
summary/accepted count checked
summary/tokens_per_round number checked
summary/equal_plain? count checked
)";

const std::string_view kServedFields = R"(
server text stated
options/parallel count stated
)";

}  // namespace kakeya::eval
