#include "bindings/forms.h"

#include <nanobind/stl/shared_ptr.h>

#include "kakeya/status_macros.h"

namespace kakeya::python {

Status Forms::prepare() {
  const std::scoped_lock lock(preparing_);
  if (grammars_) return {};
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine_->tokenizer());
  markers_ = service::find_thought_markers(*engine_);
  KAKEYA_ASSIGN_OR_RETURN(grammars_, service::GrammarEngine::create(
                                         *tokenizer, engine_->vocab_size(), engine_->stop_ids()));
  return {};
}

Result<std::unique_ptr<Constraint>> Forms::hold(const service::AnswerFormat& format,
                                                std::span<const TokenId> prompt,
                                                bool in_chat) {
  if (format.is_free()) return nullptr;
  KAKEYA_TRY(prepare());
  KAKEYA_ASSIGN_OR_RETURN(const auto grammar, grammars_->compile(format));
  if (!in_chat || !markers_) return grammar->constrain({}, false);
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine_->tokenizer());
  return grammar->constrain(markers_, service::ends_in_thought(*markers_, *tokenizer, prompt));
}

void bind_forms(nb::module_& module) {
  nb::class_<Forms>(module, "Forms", "What answers of an engine are held to.")
      .def(nb::init<std::shared_ptr<Engine>>());
  module.attr("has_grammars") = service::has_grammars();
}

}  // namespace kakeya::python
