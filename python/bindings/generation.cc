#include "bindings/generation.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

namespace kakeya::python {
namespace {

std::string_view stop_reason(const Generation& generation) {
  if (generation.stopped_by_text) return "stop_text";
  return stop_reason_name(generation.tokens.stop_reason);
}

void bind_logprobs(nb::module_& module) {
  nb::class_<TokenLogprobs>(module, "TokenLogprobs", "Log-probabilities at one position.")
      .def_prop_ro("id", [](const TokenLogprobs& here) { return here.token.id; })
      .def_prop_ro("logprob", [](const TokenLogprobs& here) { return here.token.logprob; })
      .def_prop_ro(
          "top",
          [](const TokenLogprobs& here) {
            nb::list top;
            for (const TokenLogprob& each : here.top) {
              top.append(nb::make_tuple(each.id, each.logprob));
            }
            return top;
          },
          nb::sig("def top(self) -> list[tuple[int, float]]"),
          "The likeliest tokens there, as (id, log-probability), in order.");
}

void bind_rounds(nb::module_& module) {
  nb::class_<RoundRecord>(module, "Round", "One pass after the prompt.")
      .def_ro("start_seconds", &RoundRecord::start_seconds)
      .def_ro("draft_seconds", &RoundRecord::draft_seconds)
      .def_ro("verify_seconds", &RoundRecord::verify_seconds)
      .def_ro("bytes", &RoundRecord::bytes)
      .def_ro("drafted", &RoundRecord::drafted)
      .def_ro("accepted", &RoundRecord::accepted)
      .def_ro("committed", &RoundRecord::committed)
      .def_prop_ro("kind", [](const RoundRecord& round) { return draft_kind_name(round.kind); })
      .def_prop_ro("reason",
                   [](const RoundRecord& round) { return draft_reason_name(round.reason); });
}

}  // namespace

void bind_generation(nb::module_& module) {
  bind_logprobs(module);
  bind_rounds(module);
  nb::class_<Generation>(module, "Generation", "The outcome of a generation.")
      .def_prop_ro(
          "ids",
          [](const Generation& it) { return array_of(std::span(std::as_const(it.tokens.ids))); },
          nb::rv_policy::automatic, nb::sig("def ids(self) -> numpy.typing.NDArray[numpy.int32]"),
          "With the stop id, if one ended it.")
      .def_ro("text", &Generation::text,
              "Without stop string and special tokens; None where the model has no tokenizer.")
      .def_prop_ro("stop_reason", &stop_reason,
                   "stop_id, stop_text, max_tokens, context or callback.")
      .def_prop_ro(
          "logprobs",
          [](const Generation& it) -> std::optional<std::vector<TokenLogprobs>> {
            if (!it.with_logprobs) return {};
            return it.tokens.logprobs;
          },
          "One for each id; None unless they were asked for.")
      .def_prop_ro("rounds", [](const Generation& it) { return it.tokens.rounds; })
      .def_prop_ro("drafted", [](const Generation& it) { return it.tokens.drafted; })
      .def_prop_ro("accepted", [](const Generation& it) { return it.tokens.accepted; })
      .def_prop_ro("acceptance_length",
                   [](const Generation& it) { return it.tokens.acceptance_length(); })
      .def_prop_ro("prefill_seconds",
                   [](const Generation& it) { return it.tokens.prefill_seconds; })
      .def_prop_ro("decode_seconds", [](const Generation& it) { return it.tokens.decode_seconds; })
      .def_prop_ro("prefill_tokens", [](const Generation& it) { return it.tokens.prefill_tokens; })
      .def("__repr__", [](const Generation& it) {
        return "<kakeya.Generation of " + std::to_string(it.tokens.ids.size()) + " tokens, " +
               std::string(stop_reason(it)) + ">";
      });
}

}  // namespace kakeya::python
