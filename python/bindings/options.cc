#include "bindings/options.h"

#include <nanobind/stl/string.h>

#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <utility>

namespace kakeya::python {
namespace {

constexpr std::initializer_list<std::pair<const char*, Compute>> kComputes = {
    {"f32", Compute::kF32}, {"fast", Compute::kFast}};
constexpr std::initializer_list<std::pair<const char*, KvType>> kKvTypes = {
    {"auto", KvType::kAuto}, {"f32", KvType::kF32},   {"bf16", KvType::kBf16},
    {"int8", KvType::kInt8}, {"int4", KvType::kInt4}, {"rotated_int4", KvType::kRotatedInt4},
    {"d4", KvType::kD4},     {"e8", KvType::kE8}};
constexpr std::initializer_list<std::pair<const char*, Evicted>> kEvicted = {
    {"keep", Evicted::kKeep}, {"drop", Evicted::kDrop}, {"restore", Evicted::kRestore}};
constexpr std::initializer_list<std::pair<const char*, Pooling>> kPoolings = {
    {"last", Pooling::kLast}, {"mean", Pooling::kMean}};

[[noreturn]] void refuse_type(const std::string& name, const char* expected, nb::handle got) {
  const std::string type = nb::cast<std::string>(got.type().attr("__name__"));
  throw nb::type_error((name + ": expected " + expected + ", got " + type).c_str());
}

template <typename T>
T integer_of(const std::string& name, nb::handle value) {
  if (PyIndex_Check(value.ptr()) == 0) refuse_type(name, "an integer", value);
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  T number{};
  if (nb::try_cast(index, number)) return number;
  const std::string text = nb::cast<std::string>(nb::str(index));
  throw nb::value_error((name + ": expected " + std::to_string(std::numeric_limits<T>::min()) +
                         " to " + std::to_string(std::numeric_limits<T>::max()) + ", got " + text)
                            .c_str());
}

float number_of(const std::string& name, nb::handle value) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (PyErr_Occurred() == nullptr) return static_cast<float>(number);
  PyErr_Clear();
  refuse_type(name, "a number", value);
}

std::string text_of(const std::string& name, nb::handle value) {
  if (PyUnicode_Check(value.ptr()) == 0) refuse_type(name, "str", value);
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text == nullptr) throw nb::python_error();
  return {text, static_cast<std::size_t>(size)};
}

// True for the word "auto", which stands for a number that the engine chooses.
bool is_auto(nb::handle value) {
  return PyUnicode_Check(value.ptr()) != 0 && nb::cast<std::string>(value) == "auto";
}

// A value as JSON text. Throws what json.dumps() raises.
std::string json_of(const std::string& name, const nb::object& value) {
  const nb::object dumps = nb::module_::import_("json").attr("dumps");
  return text_of(name, dumps(value, nb::arg("ensure_ascii") = false));
}

// A path as the file system has it.
std::string path_of(const std::string& name, nb::handle value) {
  if (PyUnicode_Check(value.ptr()) == 0 && !nb::hasattr(value, "__fspath__")) {
    refuse_type(name, "a path", value);
  }
  const nb::bytes bytes(nb::module_::import_("os").attr("fsencode")(value));
  return {bytes.c_str(), bytes.size()};
}

std::vector<std::string> texts_of(const std::string& name, nb::handle value) {
  if (PySequence_Check(value.ptr()) == 0 || PyUnicode_Check(value.ptr()) != 0) {
    refuse_type(name, "a sequence of str", value);
  }
  std::vector<std::string> texts;
  for (const nb::handle text : nb::borrow<nb::sequence>(value))
    texts.push_back(text_of(name, text));
  return texts;
}

class Keywords {
 public:
  // `whose` begins messages.
  Keywords(const nb::dict& given, std::string whose) : given_(given), whose_(std::move(whose)) {}

  void read(const char* name, bool& field) {
    with(name, [&](nb::handle value) {
      if (!PyBool_Check(value.ptr())) refuse_type(place(name), "a bool", value);
      field = value.ptr() == Py_True;
    });
  }
  template <typename T>
  requires std::is_integral_v<T>
  void read(const char* name, T& field) {
    with(name, [&](nb::handle value) { field = integer_of<T>(place(name), value); });
  }
  void read(const char* name, float& field) {
    with(name, [&](nb::handle value) { field = number_of(place(name), value); });
  }
  void read(const char* name, std::string& field) {
    with(name, [&](nb::handle value) { field = text_of(place(name), value); });
  }
  void read_path(const char* name, std::string& field) {
    with(name, [&](nb::handle value) { field = path_of(place(name), value); });
  }
  template <typename T>
  void read(const char* name, T& field, std::initializer_list<std::pair<const char*, T>> words) {
    with(name, [&](nb::handle value) {
      const std::string given = text_of(place(name), value);
      std::string known;
      for (const auto& [word, meaning] : words) {
        if (given == word) {
          field = meaning;
          return;
        }
        known += (known.empty() ? "" : ", ") + std::string(word);
      }
      throw nb::value_error((place(name) + ": expected " + known + ", got " + given).c_str());
    });
  }
  // Calls `read_value` if the name was given.
  template <typename Read>
  void with(const char* name, const Read& read_value) {
    known_.insert(name);
    if (given_.contains(name)) read_value(nb::handle(given_[name]));
  }
  std::string place(const char* name) const { return whose_ + name; }

  // After all that there is to read.
  void refuse_unknown() const {
    for (const auto& [key, value] : given_) {
      const std::string name = text_of(whose_ + "name of an option", key);
      if (known_.contains(name)) continue;
      std::string known;
      for (const std::string& each : known_) known += (known.empty() ? "" : ", ") + each;
      throw nb::type_error((place(name.c_str()) + ": no such option; expected " + known).c_str());
    }
  }

 private:
  const nb::dict& given_;
  std::string whose_;
  std::set<std::string> known_;
};

void read_session(Keywords& keywords, SessionOptions& options) {
  keywords.read("context", options.context);
  keywords.read("max_rows", options.max_rows);
  keywords.read("kv_full", options.kv_full, kKvTypes);
  keywords.read("kv_sliding", options.kv_sliding, kKvTypes);
  keywords.read("kv_drafter", options.kv_drafter, kKvTypes);
  keywords.read("kv_codes", options.kv_codes, kKvTypes);
  keywords.read("sink", options.sink);
  keywords.read("window", options.window);
  keywords.read("evicted_full", options.evicted_full, kEvicted);
  keywords.read("evicted_sliding", options.evicted_sliding, kEvicted);
  keywords.read("drafting", options.drafting);
  keywords.read("grow", options.grow);
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

// Calls as OpenAI has them; arguments may be a dict.
std::vector<ToolCall> tool_calls_of(const std::string& name, nb::handle value) {
  if (PySequence_Check(value.ptr()) == 0) refuse_type(name, "a sequence of calls", value);
  std::vector<ToolCall> calls;
  for (const nb::handle each : nb::borrow<nb::sequence>(value)) {
    const std::string place = name + "[" + std::to_string(calls.size()) + "]";
    if (PyDict_Check(each.ptr()) == 0) refuse_type(place, "a dict", each);
    const auto fields = nb::borrow<nb::dict>(each);
    ToolCall& call = calls.emplace_back();
    Keywords keywords(fields, place + ".");
    std::string type = "function";
    keywords.read("id", call.id);
    keywords.read("type", type, {{"function", type}});
    keywords.with("function", [&](nb::handle function) {
      if (PyDict_Check(function.ptr()) == 0) refuse_type(place + ".function", "a dict", function);
      const auto parts = nb::borrow<nb::dict>(function);
      Keywords of_function(parts, place + ".function.");
      of_function.read("name", call.name);
      of_function.with("arguments", [&](nb::handle arguments) {
        const std::string where = of_function.place("arguments");
        call.arguments = PyDict_Check(arguments.ptr()) != 0 ? json_of(where, nb::borrow(arguments))
                                                            : text_of(where, arguments);
      });
      of_function.refuse_unknown();
    });
    keywords.refuse_unknown();
    if (call.name.empty()) {
      throw nb::type_error((place + ": expected a function with a name, got none").c_str());
    }
  }
  return calls;
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
  keywords.with("stop_ids", [&](nb::handle value) { generate.stop_ids = token_ids(value); });
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

std::vector<ChatMessage> chat_messages(const nb::sequence& given) {
  std::vector<ChatMessage> messages;
  for (const nb::handle each : given) {
    const std::string place = "message " + std::to_string(messages.size());
    if (PyDict_Check(each.ptr()) == 0) refuse_type(place, "a dict", each);
    const auto fields = nb::borrow<nb::dict>(each);
    const bool calls = fields.contains("tool_calls");
    for (const char* needed : {"role", "content"}) {
      if (!fields.contains(needed) && (!calls || std::string_view(needed) == "role")) {
        throw nb::type_error((place + ": expected role and content, got no " + needed).c_str());
      }
    }
    Keywords keywords(fields, place + ": ");
    ChatMessage& message = messages.emplace_back();
    keywords.read("role", message.role);
    keywords.with("content", [&](nb::handle value) {
      if (calls && value.is_none()) return;
      message.content = text_of(keywords.place("content"), value);
    });
    keywords.with("tool_calls", [&](nb::handle value) {
      message.tool_calls = tool_calls_of(keywords.place("tool_calls"), value);
    });
    keywords.read("name", message.name);
    keywords.read("tool_call_id", message.tool_call_id);
    keywords.read("reasoning", message.reasoning);
    keywords.refuse_unknown();
  }
  return messages;
}

nb::dict message_dict(const ChatMessage& message) {
  nb::dict fields;
  fields["role"] = message.role;
  fields["content"] = nb::none();
  if (!message.content.empty() || message.tool_calls.empty()) fields["content"] = message.content;
  if (!message.reasoning.empty()) fields["reasoning"] = message.reasoning;
  if (message.tool_calls.empty()) return fields;
  nb::list calls;
  for (const ToolCall& call : message.tool_calls) {
    nb::dict function;
    function["name"] = call.name;
    function["arguments"] = call.arguments;
    nb::dict whole;
    whole["id"] = call.id;
    whole["type"] = "function";
    whole["function"] = function;
    calls.append(whole);
  }
  fields["tool_calls"] = calls;
  return fields;
}

std::vector<std::string> tool_texts(const nb::sequence& given) {
  std::vector<std::string> tools;
  for (const nb::handle each : given) {
    const std::string place = "tools[" + std::to_string(tools.size()) + "]";
    if (PyDict_Check(each.ptr()) == 0) refuse_type(place, "a dict", each);
    tools.push_back(json_of(place, nb::borrow(each)));
  }
  return tools;
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

std::vector<TokenId> token_ids(nb::handle given) {
  if (PySequence_Check(given.ptr()) == 0 || PyUnicode_Check(given.ptr()) != 0 ||
      PyBytes_Check(given.ptr()) != 0) {
    refuse_type("token ids", "a sequence of integers", given);
  }
  std::vector<TokenId> ids;
  for (const nb::handle id : given) ids.push_back(integer_of<TokenId>("token id", id));
  return ids;
}

}  // namespace kakeya::python
