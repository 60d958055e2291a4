#include "text/chat_template.h"

#include <utf8proc.h>

#include <array>
#include <ctime>
#include <utility>

#include "base/status.h"
#include "formats/printable.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/utf8.h"

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

bool is_shown(char32_t code_point) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return category != UTF8PROC_CATEGORY_CC && category != UTF8PROC_CATEGORY_CF &&
         category != UTF8PROC_CATEGORY_ZL && category != UTF8PROC_CATEGORY_ZP;
}

// One line that a terminal shows as it is: messages quote texts of the template, or are such, in
// any language.
std::string shown(std::string_view text) {
  constexpr std::size_t kMaxMessageBytes = 500;
  std::string line;
  for (std::size_t i = 0; i < text.size();) {
    if (line.size() >= kMaxMessageBytes) return line + "...";
    const Utf8Step step = read_utf8(text, i);
    if (step.code_point == '\n' || step.code_point == '\r') {
      line += ' ';
    } else if (step.valid && is_shown(step.code_point)) {
      line += text.substr(i, step.size);
    } else {
      line += printable(text.substr(i, step.size));
    }
    i += step.size;
  }
  return line;
}

Unexpected error_at(int line, const Error& error) {
  return Unexpected(Error(
      error.code(), fmt::format("[chat template] line {}: {}", line, shown(error.message()))));
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
  auto block = jinja::parse_template(source);
  if (!block) return Unexpected(Error(block.error().code(), shown(block.error().message())));
  return ChatTemplate(std::make_unique<const Impl>(Impl{std::move(*block)}));
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& context,
                                         const RenderOptions& options) const {
  if (!context.is_object()) {
    return invalid_argument("[chat template] the context must be an object");
  }
  auto globals = std::make_shared<jinja::Scope>();
  for (const auto& [name, json] : context.items()) {
    auto value = jinja::from_json(json);
    if (!value) return Unexpected(value.error().with_context("[chat template] " + printable(name)));
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
