// Pieces that several commands share: opening an engine with a progress bar, describing what was
// generated.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "kakeya/engine.h"
#include "kakeya/text_generation.h"

namespace kakeya::cli {

// Loads the model with a progress bar on a terminal. Errors: as engine_options and Engine::open.
Result<std::shared_ptr<Engine>> open_engine(const ModelFlags& flags);

// The fields of `run --json` that describe one reply.
nlohmann::ordered_json generation_json(const TextResult& result);

// "42 tokens, 512.3 tokens/s; prompt 18 tokens in 0.01 s; cpu/avx512_bf16; stopped by stop_id", and
// a line about drafting if there was any.
std::string generation_summary(const TextResult& result, const std::string& backend);

// Writes the prefill and the rounds as Chrome trace events (chrome://tracing, ui.perfetto.dev).
Status write_trace(const std::string& path, const GenerateResult& result);

// Replaces a file in one step; writes into a device or FIFO. Errors: as AtomicFile; kNotFound and
// kDataLoss for what is no file.
Status write_text(const std::string& path, const std::string& text);

// Checks that write_text() could begin, before a long piece of work; leaves what the file holds.
Status check_writable(const std::string& path);

bool stdin_is_terminal();

// Reads a line without its end. False at the end of input or when a signal interrupted it.
// Errors: kInvalidArgument for a line of more than kMostPromptBytes, of which the rest is skipped.
Result<bool> read_line(std::string& line);

}  // namespace kakeya::cli
