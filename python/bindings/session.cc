#include "bindings/session.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <string_view>

#include "bindings/errors.h"
#include "kakeya/status_macros.h"

namespace kakeya::python {
namespace {

constexpr std::size_t kTokensOfAPart = 256;

Result<TextResult> generate_without_text(Session& session,
                                         const TextOptions& options,
                                         const TokenCallback& on_token) {
  auto tokens = session.generate(options.generate, on_token);
  if (!tokens) return Unexpected(tokens.error());
  TextResult result;
  result.tokens = std::move(tokens).value();
  return result;
}

Error interrupted() {
  return {StatusCode::kCancelled, "the call was interrupted"};
}

std::string path_bytes(const nb::bytes& path) {
  return {path.c_str(), path.size()};
}

// The rows [S, width] of the tokens, written where NumPy has them.
Matrix<float> read_rows(PythonSession& it, nb::handle ids, RowKind kind) {
  const auto given = token_ids(ids, it.context());
  const auto width = static_cast<std::size_t>(it.width(kind));
  std::unique_ptr<float[]> rows;
  std::size_t filled = 0;
  Callbacks callbacks;
  const auto take = [&](Position, std::span<const float> row) -> Status {
    if (!callbacks.check_signals()) return Unexpected(interrupted());
    // Only here is it known that the session takes so many tokens.
    if (rows == nullptr) rows.reset(new (std::nothrow) float[given.size() * width]);
    if (rows == nullptr) {
      return Unexpected(Error(StatusCode::kResourceExhausted, "there is no memory for the rows"));
    }
    std::copy(row.begin(), row.end(), rows.get() + filled);
    filled += row.size();
    return {};
  };
  auto read = it.unlocked([&](Session& session) { return session.read_rows(given, kind, take); });
  callbacks.rethrow();
  value_of(std::move(read));
  if (rows == nullptr) rows = std::make_unique<float[]>(1);  // of no tokens
  float* const data = rows.release();
  return Matrix<float>(data, {given.size(), width}, owner_of(data));
}

// In parts, between which Ctrl-C counts: the numbers do not depend on them.
std::vector<TokenLogprobs> score(PythonSession& it, nb::handle ids, int top_logprobs) {
  const auto given = token_ids(ids, it.context());
  const auto rest_of = [&](std::size_t done) {
    return std::span(given).subspan(done).first(std::min(kTokensOfAPart, given.size() - done));
  };
  Callbacks callbacks;
  auto scored = it.unlocked([&](Session& session) -> Result<std::vector<TokenLogprobs>> {
    if (given.size() > kTokensOfAPart) {
      // A part that is refused must not leave those before it.
      KAKEYA_ASSIGN_OR_RETURN(const auto fork, session.fork());
      KAKEYA_TRY(fork->append(given));
    }
    KAKEYA_ASSIGN_OR_RETURN(auto scores, session.score(rest_of(0), top_logprobs));
    while (scores.size() < given.size()) {
      if (!callbacks.check_signals()) return Unexpected(interrupted());
      KAKEYA_ASSIGN_OR_RETURN(auto more, session.score(rest_of(scores.size()), top_logprobs));
      std::move(more.begin(), more.end(), std::back_inserter(scores));
    }
    return scores;
  });
  callbacks.rethrow();
  return value_of(std::move(scored));
}

void bind_rows(nb::class_<PythonSession>& type) {
  const auto bind = [&](const char* name, RowKind kind, const char* signature) {
    type.def(
        name, [kind](PythonSession& it, nb::handle ids) { return read_rows(it, ids, kind); },
        nb::call_guard<Call>(), nb::sig(signature));
  };
  bind("logits", RowKind::kLogits,
       "def logits(self, ids: object, /) -> numpy.typing.NDArray[numpy.float32]");
  bind("hidden", RowKind::kHidden,
       "def hidden(self, ids: object, /) -> numpy.typing.NDArray[numpy.float32]");
}

void bind_tokens(nb::class_<PythonSession>& type) {
  type.def(
          "append",
          [](PythonSession& it, nb::handle ids) {
            const auto given = token_ids(ids, it.context());
            value_of(it.unlocked([&](Session& session) { return session.append(given); }));
          },
          nb::call_guard<Call>())
      .def(
          "sync",
          [](PythonSession& it, nb::handle ids) {
            const auto given = token_ids(ids, it.context());
            return value_of(it.unlocked([&](Session& session) { return session.sync(given); }));
          },
          nb::call_guard<Call>())
      .def("score", &score, nb::call_guard<Call>())
      .def("truncate",
           [](PythonSession& it, Position length) {
             value_of(it.unlocked([&](Session& session) { return session.truncate(length); }));
           })
      .def_prop_ro(
          "tokens",
          [](PythonSession& it) {
            const auto tokens = it.unlocked([](Session& session) {
              const std::span<const TokenId> held = session.tokens();
              return std::vector<TokenId>(held.begin(), held.end());
            });
            return array_of(std::span(tokens));
          },
          nb::rv_policy::automatic,
          nb::sig("def tokens(self) -> numpy.typing.NDArray[numpy.int32]"));
}

void bind_files(nb::class_<PythonSession>& type) {
  type.def("snapshot",
           [](PythonSession& it, const nb::bytes& path, const nb::bytes& note) {
             const std::string file = path_bytes(path);
             const std::string_view text(note.c_str(), note.size());
             value_of(it.unlocked([&](Session& session) { return session.snapshot(file, text); }));
           })
      .def("restore", [](PythonSession& it, const nb::bytes& path) {
        const std::string file = path_bytes(path);
        const std::string note =
            value_of(it.unlocked([&](Session& session) { return session.restore(file); }));
        return nb::bytes(note.data(), note.size());
      });
}

}  // namespace

PythonSession::Turn::Turn(std::atomic<bool>& busy) : busy_(&busy) {
  if (busy.exchange(true)) {
    throw Raised{Error(StatusCode::kFailedPrecondition,
                       "the session is busy: another call of it runs, of which this may be a "
                       "callback")};
  }
}

std::unique_ptr<PythonSession> PythonSession::fork() {
  auto forked = unlocked([](Session& session) { return session.fork(); });
  return std::make_unique<PythonSession>(forms_, value_of(std::move(forked)));
}

std::int64_t PythonSession::width(RowKind kind) const {
  const Engine& engine = *forms_->engine();
  return kind == RowKind::kLogits ? engine.vocab_size() : engine.hidden_size();
}

PythonSession::Generating PythonSession::prepare(GenerationWish wish, bool with_text) {
  refuse_within_constraint();
  const auto tokenizer = forms_->engine()->tokenizer();
  if (!tokenizer && (with_text || !wish.text.stop_strings.empty())) {
    throw Raised{tokenizer.error()};
  }
  auto plan = [&] {
    const Unlocked unlocked;
    return forms_->plan({.format = wish.format, .is_chat = false});
  }();
  return {.wish = std::move(wish),
          .form = value_of(std::move(plan)).constrain({}),
          .tokenizer = tokenizer ? *tokenizer : nullptr};
}

Result<TextResult> PythonSession::run(Generating& generating, const TextCallback& on_piece) {
  TextOptions& options = generating.wish.text;
  PythonConstraint* const written = generating.wish.constraint.get();
  options.generate.constraint = written != nullptr ? written : generating.form.get();
  options.generate.on_prefill = [&](std::int64_t, std::int64_t) { return on_piece({}); };
  if (generating.tokenizer != nullptr) {
    return generate_text(*session_, *generating.tokenizer, options, on_piece);
  }
  return generate_without_text(*session_, options, [&](const TokenEvent&) { return on_piece({}); });
}

Generation PythonSession::generate(GenerationWish wish) {
  Generating generating = prepare(std::move(wish), /*with_text=*/false);
  Callbacks callbacks;
  auto result = unlocked([&](Session&) {
    auto said = run(generating, [&](std::string_view) { return callbacks.check_signals(); });
    destroy_postponed();
    return said;
  });
  if (generating.wish.constraint) generating.wish.constraint->rethrow();
  callbacks.rethrow();
  TextResult said = value_of(std::move(result));
  Generation generation;
  generation.tokens = std::move(said.tokens);
  generation.stopped_by_text = said.stopped_by_text;
  generation.with_logprobs = generating.wish.text.generate.logprobs;
  if (generating.tokenizer != nullptr) generation.text = std::move(said.text);
  return generation;
}

nb::dict footprint_dict(const Footprint& footprint) {
  nb::dict bytes;
  for (std::size_t i = 0; i < kNumMemoryClasses; ++i) {
    const std::string_view name = memory_class_name(static_cast<MemoryClass>(i));
    bytes[nb::str(name.data(), name.size())] = footprint.reserved[i];
  }
  return bytes;
}

void bind_session(nb::module_& module) {
  nb::class_<PythonSession> type(module, "Session", "One timeline of tokens.");
  bind_tokens(type);
  bind_rows(type);
  bind_files(type);
  type.def(
          "generate",
          [](PythonSession& it, const nb::dict& options) {
            return it.generate(generation_wish(options));
          },
          nb::call_guard<Call>(),
          nb::sig("def generate(self, options: collections.abc.Mapping[str, object], /) -> "
                  "Generation"))
      .def("fork", &PythonSession::fork)
      .def_prop_ro("position",
                   [](PythonSession& it) {
                     return it.unlocked([](Session& session) { return session.position(); });
                   })
      .def_prop_ro("context", [](const PythonSession& it) { return it.context(); })
      .def(
          "footprint",
          [](PythonSession& it) {
            return footprint_dict(
                it.unlocked([](Session& session) { return session.footprint(); }));
          },
          nb::sig("def footprint(self) -> dict[str, int]"));
  module.def(
      "create_session",
      [](const std::shared_ptr<Forms>& forms, const nb::dict& given) {
        refuse_within_constraint();
        const std::shared_ptr<Engine>& engine = forms->engine();
        const SessionOptions options = session_options(given, engine->session_options());
        auto session = [&] {
          const Unlocked unlocked;
          return engine->create_session(options);
        }();
        return std::make_unique<PythonSession>(forms, value_of(std::move(session)));
      },
      nb::call_guard<Call>(),
      nb::sig("def create_session(forms: Forms, options: collections.abc.Mapping[str, object], /) "
              "-> Session"));
}

}  // namespace kakeya::python
