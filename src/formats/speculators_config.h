// config.json as vLLM's speculators write it for a drafter (speculators_model_type "dflash" or
// "dflash2"): the fields of the layers lie in transformer_layer_config, the others at the top under
// names of their own. Used by formats/drafter_config.cc, which reads what comes of it.
#pragma once

#include <string>

#include "formats/json_document.h"
#include "kakeya/status.h"

namespace kakeya {

// True if a writer of speculators made it, for whatever kind of drafter.
bool is_speculators_config(const JsonFields& root);

// The config.json with which its publisher would describe the drafter. Taps count from the
// embedding there, which is output 0, and from layer 0 here. Errors: kUnimplemented for another
// kind of drafter, and for a field that asks for what no drafter here computes; kInvalidArgument
// for impossible values.
Result<std::string> config_of_speculators(const JsonFields& root);

}  // namespace kakeya
