#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "base/status.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"

namespace kakeya {
namespace {

constexpr std::size_t kMaxSourceBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxTimeFormatBytes = 256;

// strftime of now, in local time; empty if the format gives too much.
std::string format_local_time(std::string_view format) {
  if (format.size() > kMaxTimeFormatBytes) return "";
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  if (localtime_r(&now, &local) == nullptr) return "";
  std::array<char, 4096> buffer{};
  const std::size_t size =
      std::strftime(buffer.data(), buffer.size(), std::string(format).c_str(), &local);
  return {buffer.data(), size};
}

// The error with its line, itself on one line: messages quote texts of the template.
Unexpected error_at(int line, const Error& error) {
  std::string message = fmt::format("[chat template] line {}: {}", line, error.message());
  std::ranges::replace_if(
      message, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return Unexpected(Error(error.code(), std::move(message)));
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Block block;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return invalid_argument("[chat template] has {} bytes, more than {}", source.size(),
                            kMaxSourceBytes);
  }
  KAKEYA_ASSIGN_OR_RETURN(auto block, jinja::parse_template(source));
  return ChatTemplate(std::make_unique<const Impl>(Impl{std::move(block)}));
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& context,
                                         const RenderOptions& options) const {
  if (!context.is_object()) {
    return invalid_argument("[chat template] the context must be an object");
  }
  auto globals = std::make_shared<jinja::Scope>();
  for (const auto& [name, json] : context.items()) {
    auto value = jinja::from_json(json);
    if (!value) return Unexpected(value.error().with_context("[chat template] " + name));
    globals->set(name, std::move(*value));
  }
  jinja::Environment environment{jinja::Budget(options.limits), options.format_time, {}};
  if (!environment.format_time) environment.format_time = format_local_time;
  jinja::Evaluator evaluator(environment, globals);
  std::string text;
  const Status status = evaluator.run(impl_->block, text);
  if (!status) return error_at(evaluator.line(), status.error());
  return text;
}

}  // namespace kakeya
