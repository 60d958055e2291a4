#include "bindings/engine.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/errors.h"
#include "bindings/forms.h"
#include "bindings/generation.h"
#include "bindings/messages.h"
#include "bindings/options.h"
#include "bindings/passes.h"
#include "bindings/session.h"
#include "kakeya/engine.h"

namespace kakeya::python {
namespace {

constexpr std::int64_t kMostDecoded = std::int64_t{1} << 24;

// The lines that an engine has told, by any of its threads. These may hold locks of the engine, for
// which one with the GIL may wait: so Python asks for the lines, and nothing calls Python.
class Notes {
 public:
  void add(const std::string& line) {
    const std::scoped_lock lock(mutex_);
    if (lines_.size() == kMost) lines_.erase(lines_.begin());
    lines_.push_back(line);
  }
  std::vector<std::string> lines() const {
    const std::scoped_lock lock(mutex_);
    return lines_;
  }

 private:
  static constexpr std::size_t kMost = 1000;  // a disk that fails may tell it for months

  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

// Ends a loading, which asks nobody whether it shall go on.
struct LoadingEnds {};

std::unique_ptr<PythonEngine> open_engine(const nb::dict& given,
                                          const nb::object& on_progress,
                                          std::shared_ptr<Notes> notes) {
  EngineOptions options = engine_options(given);
  options.on_note = [notes = std::move(notes)](const std::string& line) { notes->add(line); };
  Callbacks callbacks;
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    const bool goes_on = on_progress.is_none() ? callbacks.check_signals() : callbacks.run([&] {
      on_progress(done, total);
      return true;
    });
    if (!goes_on) throw LoadingEnds();
  };
  auto engine = [&]() -> Result<std::shared_ptr<Engine>> {
    const Unlocked unlocked;
    try {
      return Engine::open(options);
    } catch (const LoadingEnds&) {
      return Unexpected(Error(StatusCode::kCancelled, "loading was interrupted"));
    }
  }();
  callbacks.rethrow();
  return std::make_unique<PythonEngine>(value_of(std::move(engine)));
}

nb::dict estimate(const nb::dict& given) {
  const EngineOptions options = engine_options(given);
  auto footprint = [&] {
    const Unlocked unlocked;
    return Engine::estimate(options);
  }();
  return footprint_dict(value_of(std::move(footprint)));
}

Array<float> embed(const PythonEngine& of, nb::handle ids, const nb::dict& options) {
  refuse_within_constraint();
  Engine& engine = of.get();
  const auto given = token_ids(ids, engine.max_context());
  const EmbeddingOptions how = embedding_options(options);
  auto vector = [&] {
    const Unlocked unlocked;
    return engine.embed(given, how);
  }();
  const std::vector<float> numbers = value_of(std::move(vector));
  return array_of(std::span(numbers));
}

Array<TokenId> encode(const PythonEngine& of,
                      std::string_view text,
                      bool begin,
                      bool parse_special) {
  const Engine& engine = of.get();
  const EncodeOptions options = {.parse_special = parse_special};
  auto encoded = [&]() -> Result<std::vector<TokenId>> {
    const Unlocked unlocked;
    if (begin) return engine.encode_text(text, options);
    const auto tokenizer = engine.tokenizer();
    if (!tokenizer) return Unexpected(tokenizer.error());
    return (*tokenizer)->encode(text, options);
  }();
  const auto ids = value_of(std::move(encoded));
  return array_of(std::span(ids));
}

std::string decode(const PythonEngine& of, nb::handle ids, bool skip_special) {
  const Tokenizer* tokenizer = value_of(of.get().tokenizer());
  return tokenizer->decode(token_ids(ids, kMostDecoded, "a call"), skip_special);
}

Array<TokenId> encode_chat(const PythonEngine& of, const nb::sequence& given, const nb::dict& how) {
  const Engine& engine = of.get();
  const auto messages = chat_messages(given);
  const ChatOptions options = chat_options(how);
  auto encoded = [&] {
    const Unlocked unlocked;
    return engine.encode_chat(messages, options);
  }();
  const auto ids = value_of(std::move(encoded));
  return array_of(std::span(ids));
}

// What never changes, in a fork neither.
template <auto kMember>
auto constant(const PythonEngine& of) {
  return ((*of.engine).*kMember)();
}

}  // namespace

void bind_engine(nb::module_& module) {
  nb::class_<Notes>(module, "Notes", "What an engine told.")
      .def(nb::init<>())
      .def("lines", &Notes::lines);
  nb::class_<PythonEngine>(module, "Engine", "A loaded model.")
      .def("embed", &embed, nb::call_guard<Call>(),
           nb::sig(
               "def embed(self, ids: object, options: collections.abc.Mapping[str, object], /) -> "
               "numpy.typing.NDArray[numpy.float32]"))
      .def("encode", &encode, nb::call_guard<Call>(),
           nb::sig("def encode(self, text: str, begin: bool, parse_special: bool, /) -> "
                   "numpy.typing.NDArray[numpy.int32]"))
      .def("decode", &decode, nb::call_guard<Call>())
      .def("encode_chat", &encode_chat, nb::call_guard<Call>(),
           nb::sig("def encode_chat(self, messages: object, options: collections.abc.Mapping[str, "
                   "object], /) -> "
                   "numpy.typing.NDArray[numpy.int32]"))
      .def(
          "recommended_sampling",
          [](const PythonEngine& of) {
            return sampling_keywords(of.engine->recommended_sampling());
          },
          nb::sig("def recommended_sampling(self) -> dict[str, typing.Any]"))
      .def(
          "footprint",
          [](const PythonEngine& of) {
            refuse_within_constraint();
            const Engine& engine = of.get();
            auto footprint = [&] {
              const Unlocked unlocked;
              return engine.footprint();
            }();
            return footprint_dict(footprint);
          },
          nb::sig("def footprint(self) -> dict[str, int]"))
      .def_prop_ro("backend", constant<&Engine::backend_name>)
      .def_prop_ro("threads", constant<&Engine::num_threads>)
      .def_prop_ro("draft_kind",
                   [](const PythonEngine& of) { return draft_kind_name(of.engine->draft_kind()); })
      .def_prop_ro("memory_plan", constant<&Engine::memory_plan>)
      .def_prop_ro(
          "stop_ids", [](const PythonEngine& of) { return array_of(of.engine->stop_ids()); },
          nb::rv_policy::automatic,
          nb::sig("def stop_ids(self) -> numpy.typing.NDArray[numpy.int32]"))
      .def_prop_ro("vocab_size", constant<&Engine::vocab_size>)
      .def_prop_ro("hidden_size", constant<&Engine::hidden_size>)
      .def_prop_ro("max_context", constant<&Engine::max_context>)
      .def_prop_ro("model_fingerprint", constant<&Engine::model_fingerprint>);
  module.def(
      "open_engine", &open_engine, nb::call_guard<Call>(), nb::arg("options"),
      nb::arg("on_progress").none(), nb::arg("notes"),
      nb::sig("def open_engine(options: collections.abc.Mapping[str, object], "
              "on_progress: collections.abc.Callable[[int, int], object] | None, notes: Notes) -> "
              "Engine"));
  module.def(
      "estimate", &estimate, nb::call_guard<Call>(),
      nb::sig("def estimate(options: collections.abc.Mapping[str, object], /) -> dict[str, int]"));
}

}  // namespace kakeya::python
