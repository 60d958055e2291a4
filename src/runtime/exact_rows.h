// Measures batch invariance on backends that do not promise it: how many rows a pass may have so
// that each has the bits that it has alone.
#pragma once

#include <cstdint>

#include "kakeya/status.h"

namespace kakeya {

class EngineImpl;

// Up to `most`, at least 1: passes over random texts, all rows at once and one after the other, in
// sessions that are gone afterwards. Errors: those of passes; kResourceExhausted.
Result<std::int64_t> count_exact_rows(EngineImpl& engine, std::int64_t most);

}  // namespace kakeya
