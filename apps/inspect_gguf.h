// The report of `kakeya inspect` on a GGUF file. Reads its head, never the weights.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "formats/gguf.h"
#include "inspect_report.h"
#include "kakeya/status.h"

namespace kakeya::cli {

struct GgufReport {
  GgufFile file;
  ModelSummary model;  // of all parts, if the file is the first of several
};

// Errors: those of GgufFile::open. What is no model, or a broken one, is part of the report.
Result<GgufReport> inspect_gguf(const std::string& path);

// For people: what the model is, metadata, long values cut, then one line a tensor.
std::string to_text(const GgufReport& report);

// The report as JSON, with only the beginning of long arrays.
nlohmann::ordered_json to_json(const GgufReport& report);

}  // namespace kakeya::cli
