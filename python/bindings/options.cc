#include "bindings/options.h"

#include <nanobind/stl/string.h>

#include <initializer_list>
#include <utility>

#include "bindings/keywords.h"
#include "bindings/messages.h"

namespace kakeya::python {
namespace {

constexpr std::int64_t kMostStopIds = 1 << 16;

constexpr std::initializer_list<std::pair<const char*, Compute>> kComputes = {
    {"f32", Compute::kF32}, {"fast", Compute::kFast}};
constexpr std::initializer_list<std::pair<const char*, Evicted>> kEvicted = {
    {"keep", Evicted::kKeep}, {"drop", Evicted::kDrop}, {"restore", Evicted::kRestore}};
constexpr std::initializer_list<std::pair<const char*, Pooling>> kPoolings = {
    {"last", Pooling::kLast}, {"mean", Pooling::kMean}};

// True for the word "auto", which stands for a number that the engine chooses.
bool is_auto(nb::handle value) {
  return PyUnicode_Check(value.ptr()) != 0 && nb::cast<std::string>(value) == "auto";
}

void read_kv_type(Keywords& keywords, const char* name, KvType& type) {
  keywords.with(name, [&](nb::handle value) {
    const std::string removed = removed_kv_type_refusal(text_of(keywords.place(name), value));
    if (removed.empty()) return;
    throw nb::value_error((keywords.place(name) + ": " + removed).c_str());
  });
  keywords.read(name, type, kKvTypes);
}

void read_session(Keywords& keywords, SessionOptions& options) {
  keywords.read("context", options.context);
  keywords.read("max_rows", options.max_rows);
  read_kv_type(keywords, "kv_full", options.kv_full);
  read_kv_type(keywords, "kv_sliding", options.kv_sliding);
  read_kv_type(keywords, "kv_drafter", options.kv_drafter);
  read_kv_type(keywords, "kv_codes", options.kv_codes);
  keywords.read("kv_exact", options.kv_exact);
  keywords.read("sink", options.sink);
  keywords.read("window", options.window);
  keywords.read("evicted_full", options.evicted_full, kEvicted);
  keywords.read("evicted_sliding", options.evicted_sliding, kEvicted);
  keywords.read("drafting", options.drafting);
  keywords.read("grow", options.grow);
  keywords.read("cache_scope", options.cache_scope);
}

void read_sampling(Keywords& keywords, SamplingOptions& sampling) {
  keywords.read("temperature", sampling.temperature);
  keywords.read("top_k", sampling.top_k);
  keywords.read("top_p", sampling.top_p);
  keywords.read("min_p", sampling.min_p);
  keywords.read("repetition_penalty", sampling.repetition_penalty);
  keywords.read("presence_penalty", sampling.presence_penalty);
  keywords.read("frequency_penalty", sampling.frequency_penalty);
  keywords.read("seed", sampling.seed);
  keywords.with("logit_bias", [&](nb::handle value) {
    const std::string name = keywords.place("logit_bias");
    if (PyDict_Check(value.ptr()) == 0) refuse_type(name, "a dict of ids and numbers", value);
    for (const auto& [id, bias] : nb::borrow<nb::dict>(value)) {
      sampling.logit_bias.emplace_back(integer_of<TokenId>(name, id), number_of(name, bias));
    }
  });
}

void read_stop(Keywords& keywords, std::vector<std::string>& stop_strings) {
  keywords.with("stop", [&](nb::handle value) {
    const std::string name = keywords.place("stop");
    if (PyUnicode_Check(value.ptr()) != 0) {
      stop_strings.push_back(text_of(name, value));
      return;
    }
    stop_strings = texts_of(name, value);
  });
}

// A schema as JSON text.
std::string schema_of(const std::string& name, nb::handle value) {
  if (PyUnicode_Check(value.ptr()) != 0) return text_of(name, value);
  nb::object schema = nb::borrow(value);
  if (nb::hasattr(value, "model_json_schema")) schema = value.attr("model_json_schema")();
  if (PyDict_Check(schema.ptr()) == 0) {
    refuse_type(name, "a dict, a JSON text or a class with model_json_schema()", value);
  }
  return json_of(name, schema);
}

std::shared_ptr<PythonConstraint> constraint_of(const std::string& name, nb::handle value) {
  const nb::object base = nb::module_::import_("kakeya._constraint").attr("Constraint");
  if (!nb::isinstance(value, base)) refuse_type(name, "a kakeya.Constraint", value);
  return std::make_shared<PythonConstraint>(nb::borrow(value));
}

// Reads what the answer is held to.
class FormReader {
 public:
  FormReader(Keywords& keywords, GenerationWish& wish) : keywords_(keywords), wish_(wish) {}

  // Throws ValueError for more than one form.
  void read() {
    read_text("json_schema", Kind::kJsonSchema, schema_of);
    bool any_object = false;
    keywords_.read("json_object", any_object);
    if (any_object) choose("json_object", Kind::kJsonObject);
    read_text("regex", Kind::kRegex, text_of);
    read_text("grammar", Kind::kGrammar, text_of);
    with("choices", [&](nb::handle value) {
      choose("choices", Kind::kChoice);
      wish_.format.choices = texts_of("choices", value);
    });
    with("constraint", [&](nb::handle value) {
      choose("constraint", Kind::kFree);
      wish_.constraint = constraint_of("constraint", value);
    });
    // An answer could not end where its form does.
    if (wish_.format.is_free() || !wish_.text.generate.ignore_model_stop_ids) return;
    throw nb::value_error("ignore_model_stop_ids: expected False where an answer has a form");
  }

 private:
  using Kind = service::AnswerFormat::Kind;

  // None says nothing.
  template <typename Read>
  void with(const char* name, const Read& read_value) {
    keywords_.with(name, [&](nb::handle value) {
      if (!value.is_none()) read_value(value);
    });
  }
  template <typename ReadText>
  void read_text(const char* name, Kind kind, const ReadText& text_from) {
    with(name, [&](nb::handle value) {
      choose(name, kind);
      wish_.format.text = text_from(name, value);
    });
  }
  void choose(const std::string& name, Kind kind) {
    if (!chosen_.empty()) {
      const std::string refusal =
          ": expected one form of the answer, got " + chosen_ + " beside it";
      throw nb::value_error((name + refusal).c_str());
    }
    chosen_ = name;
    wish_.format.kind = kind;
  }

  Keywords& keywords_;
  GenerationWish& wish_;
  std::string chosen_;
};

}  // namespace

EngineOptions engine_options(const nb::dict& given) {
  EngineOptions options;
  Keywords keywords(given, "");
  keywords.read_path("model", options.model_dir);
  keywords.read_path("chat_template", options.chat_template);
  keywords.read("backend", options.backend);
  keywords.read("compute", options.compute, kComputes);
  keywords.read("threads", options.num_threads);
  keywords.read("pin_threads", options.pin_threads);
  const auto read_limit = [&](const char* name, std::uint64_t& limit) {
    keywords.with(name, [&](nb::handle value) {
      if (!value.is_none()) limit = integer_of<std::uint64_t>(name, value);
    });
  };
  read_limit("memory_limit", options.memory_limit);
  read_limit("device_memory_limit", options.device_memory_limit);
  keywords.with("prompt_cache_bytes", [&](nb::handle value) {
    options.prompt_cache_bytes = is_auto(value)
                                     ? EngineOptions::kAutoPromptCache
                                     : integer_of<std::uint64_t>("prompt_cache_bytes", value);
  });
  keywords.read_path("prompt_cache_dir", options.prompt_cache_dir);
  keywords.read("prompt_cache_dir_bytes", options.prompt_cache_dir_bytes);
  keywords.read("fit_memory", options.fit_memory);
  keywords.read_path("draft", options.draft.source);
  keywords.read_path("kv_statistics", options.kv_statistics);
  keywords.read_path("projection", options.projection);
  keywords.read_path("weights_cache", options.weights_cache);
  keywords.read("weights_cache_trust", options.weights_cache_trust);
  read_session(keywords, options.session);
  keywords.refuse_unknown();
  return options;
}

SessionOptions session_options(const nb::dict& given, const SessionOptions& base) {
  SessionOptions options = base;
  Keywords keywords(given, "");
  read_session(keywords, options);
  keywords.refuse_unknown();
  return options;
}

GenerationWish generation_wish(const nb::dict& given) {
  GenerationWish wish;
  TextOptions& options = wish.text;
  GenerateOptions& generate = options.generate;
  Keywords keywords(given, "");
  keywords.read("max_tokens", generate.max_tokens);
  read_sampling(keywords, generate.sampling);
  read_stop(keywords, options.stop_strings);
  keywords.with("stop_ids", [&](nb::handle value) {
    generate.stop_ids = token_ids(value, kMostStopIds, "stop_ids");
  });
  keywords.read("ignore_model_stop_ids", generate.ignore_model_stop_ids);
  keywords.with("draft_length", [&](nb::handle value) {
    if (is_auto(value)) return;
    generate.draft_length = integer_of<std::int64_t>("draft_length", value);
  });
  keywords.read("logprobs", generate.logprobs);
  keywords.read("top_logprobs", generate.top_logprobs);
  FormReader(keywords, wish).read();
  keywords.refuse_unknown();
  return wish;
}

EmbeddingOptions embedding_options(const nb::dict& given) {
  EmbeddingOptions options;
  Keywords keywords(given, "");
  keywords.read("pooling", options.pooling, kPoolings);
  keywords.read("normalize", options.normalize);
  keywords.refuse_unknown();
  return options;
}

ChatOptions chat_options(const nb::dict& given) {
  ChatOptions options;
  Keywords keywords(given, "");
  keywords.read("add_generation_prompt", options.add_generation_prompt);
  keywords.read("continue_final_message", options.continue_final_message);
  keywords.with("thinking", [&](nb::handle value) {
    if (value.is_none()) return;
    bool thinking = false;
    keywords.read("thinking", thinking);
    options.enable_thinking = thinking;
  });
  keywords.with("tools", [&](nb::handle value) {
    if (PySequence_Check(value.ptr()) == 0) refuse_type("tools", "a sequence of dicts", value);
    options.tools = tool_texts(nb::borrow<nb::sequence>(value));
  });
  keywords.refuse_unknown();
  return options;
}

nb::dict sampling_keywords(const SamplingOptions& options) {
  nb::dict keywords;
  keywords["temperature"] = options.temperature;
  keywords["top_k"] = options.top_k;
  keywords["top_p"] = options.top_p;
  keywords["min_p"] = options.min_p;
  keywords["repetition_penalty"] = options.repetition_penalty;
  return keywords;
}

std::vector<TokenId> token_ids(nb::handle given, std::int64_t most, const std::string& whose) {
  if (PySequence_Check(given.ptr()) == 0 || PyUnicode_Check(given.ptr()) != 0 ||
      PyBytes_Check(given.ptr()) != 0) {
    refuse_type("token ids", "a sequence of integers", given);
  }
  const Py_ssize_t size = PySequence_Size(given.ptr());
  if (size < 0) throw nb::python_error();
  const auto refuse_more = [&](std::int64_t got, const char* behind) {
    if (got <= most) return;
    throw Raised{Error(StatusCode::kResourceExhausted,
                       "token ids: expected at most " + std::to_string(most) + " (" + whose +
                           "), got " + std::to_string(got) + behind)};
  };
  refuse_more(size, "");
  std::vector<TokenId> ids;
  for (const nb::handle id : given) {
    ids.push_back(integer_of<TokenId>("token id", id));
    refuse_more(std::ssize(ids), " or more");
  }
  return ids;
}

}  // namespace kakeya::python
