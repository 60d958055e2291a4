#include "bindings/forms.h"

#include "kakeya/status_macros.h"

namespace kakeya::python {

PythonEngine::PythonEngine(std::shared_ptr<Engine> opened) {
  Engine* const raw = opened.get();
  engine = {raw, [held = std::move(opened), here = birthplace](Engine*) mutable {
              if (here.is_here()) return held.reset();
              new std::shared_ptr<Engine>(std::move(held));  // kept for good
            }};
}

Forms::~Forms() {
  if (!birthplace_.is_here()) static_cast<void>(grammars_.release());
}

const Notation& Forms::notation() {
  std::call_once(asked_, [this] {
    notation_ = {.thoughts = service::find_thought_markers(*engine_),
                 .calls = service::find_tool_format(*engine_)};
  });
  return notation_;
}

Result<service::GrammarEngine*> Forms::grammars() {
  const std::scoped_lock lock(making_);
  if (grammars_) return grammars_.get();
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine_->tokenizer());
  KAKEYA_ASSIGN_OR_RETURN(grammars_, service::GrammarEngine::create(
                                         *tokenizer, engine_->vocab_size(), engine_->stop_ids()));
  return grammars_.get();
}

Result<std::optional<service::CallRules>> Forms::call_rules(const ToolWish& wish) {
  const bool can_hold = service::can_hold_calls(notation().calls);
  if (!can_hold && wish.required) {
    return Unexpected(Error(StatusCode::kUnimplemented,
                            "tool_choice: expected auto or none, for calls of this model cannot be "
                            "enforced"));
  }
  if (!can_hold || (!wish.required && !service::has_grammars())) return std::nullopt;
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine_->tokenizer());
  service::CallRules rules = {.format = notation().calls,
                              .tools = wish.tools,
                              .required = wish.required,
                              .only = wish.only,
                              .several = wish.several};
  service::find_markers(*tokenizer, rules);
  return rules;
}

Result<std::unique_ptr<Constraint>> Forms::hold(const service::AnswerFormat& format,
                                                std::span<const TokenId> prompt,
                                                bool in_chat,
                                                const ToolWish* tools) {
  std::optional<service::CallRules> calls;
  if (tools != nullptr) {
    KAKEYA_ASSIGN_OR_RETURN(calls, call_rules(*tools));
  }
  if (format.is_free() && !calls) return nullptr;
  KAKEYA_ASSIGN_OR_RETURN(service::GrammarEngine * engine, grammars());
  const auto grammar = engine->compile(format, calls ? &*calls : nullptr);
  if (!grammar) {
    const bool may_go_without = format.is_free() && !calls->required;
    if (may_go_without && grammar.error().code() == StatusCode::kInvalidArgument) return nullptr;
    return Unexpected(grammar.error());
  }
  const auto& markers = notation().thoughts;
  if (!in_chat || !markers) return (*grammar)->constrain({}, false);
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine_->tokenizer());
  return (*grammar)->constrain(markers, service::ends_in_thought(*markers, *tokenizer, prompt));
}

void bind_forms(nb::module_& module) {
  nb::class_<Forms>(module, "Forms", "What answers of an engine are held to.")
      .def(nb::init<const PythonEngine&>(), nb::call_guard<Call>());
  module.attr("has_grammars") = service::has_grammars();
}

}  // namespace kakeya::python
