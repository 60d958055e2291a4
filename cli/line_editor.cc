#include "cli/line_editor.h"

#include <fmt/format.h>
#include <histedit.h>
#include <locale.h>
#include <unistd.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "cli/command.h"
#include "cli/pastes.h"
#include "cli/report.h"
#include "cli/terminal_input.h"
#include "cli/terminal_modes.h"
#include "text/utf8.h"

namespace kakeya::cli {
namespace {

constexpr std::size_t kMostPastedBytes = std::size_t{16} << 20;
constexpr int kMostHistory = 500;
constexpr wchar_t kInterruptKey = 0x03;
constexpr wchar_t kStopKey = 0x1A;
constexpr wchar_t kQuitKey = 0x1C;

// While it lives, this thread's characters are those of UTF-8, whatever the environment says:
// libedit asks the locale how they are written and how wide they are.
class Utf8Locale {
 public:
  Utf8Locale() {
    for (const char* const name : {"C.UTF-8", "en_US.UTF-8", ""}) {
      own_ = ::newlocale(LC_CTYPE_MASK, name, nullptr);
      if (own_ != nullptr) break;
    }
    if (own_ != nullptr) before_ = ::uselocale(own_);
  }
  ~Utf8Locale() {
    if (own_ == nullptr) return;
    ::uselocale(before_);
    ::freelocale(own_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

 private:
  locale_t own_ = nullptr;
  locale_t before_ = nullptr;
};

std::wstring wide_text(std::string_view text) {
  std::wstring wide;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = read_utf8(text, at);
    wide += static_cast<wchar_t>(step.code_point);
    at += step.size;
  }
  return wide;
}

std::string narrow_text(std::wstring_view wide) {
  std::string text;
  for (const wchar_t character : wide) append_utf8(static_cast<char32_t>(character), text);
  return text;
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
struct EndEditing {
  void operator()(EditLine* line) const { ::el_end(line); }
};
struct EndHistory {
  void operator()(HistoryW* history) const { ::history_wend(history); }
};

class LibeditEditor final : public LineEditor {
 public:
  LibeditEditor(std::string_view prompt, const InterruptGuard& interrupt)
      : prompt_(wide_text(prompt)),
        interrupt_(interrupt),
        input_(STDIN_FILENO, kMostPastedBytes, [this] { return on_signal(); }) {}

  // False if libedit has no memory.
  bool start();
  Result<bool> read(std::string& line) override;

 private:
  static LibeditEditor& of(EditLine* line);
  static wchar_t* show_prompt(EditLine* line) { return of(line).prompt_.data(); }
  static int read_character(EditLine* line, wchar_t* character);

  void bind_keys();
  int next_character(wchar_t& character);
  std::wstring typed_for(TerminalInput::Event paste);
  std::string written() const;
  void say(std::string_view words);
  void draw();
  // True if the line is to be given up.
  bool on_signal();

  std::wstring prompt_;
  const InterruptGuard& interrupt_;
  TerminalModes modes_;  // its modes are those before libedit's, which el_end() leaves behind
  TerminalInput input_;
  Pastes pastes_{kMostPastedBytes};
  std::unique_ptr<std::FILE, CloseFile> output_;
  std::unique_ptr<HistoryW, EndHistory> history_;
  std::unique_ptr<EditLine, EndEditing> line_;
  std::wstring typed_;  // instead of what was pasted, and not taken yet
  std::size_t typed_taken_ = 0;
  bool interrupted_ = false;
};

LibeditEditor& LibeditEditor::of(EditLine* line) {
  void* self = nullptr;
  ::el_wget(line, EL_CLIENTDATA, &self);
  return *static_cast<LibeditEditor*>(self);
}

bool LibeditEditor::start() {
  const Utf8Locale locale;
  const int copy = ::dup(STDERR_FILENO);
  output_.reset(copy < 0 ? nullptr : ::fdopen(copy, "w"));  // with a buffer, which stderr has not
  history_.reset(::history_winit());
  if (output_ == nullptr || history_ == nullptr) return false;
  line_.reset(::el_init("kakeya", stdin, output_.get(), output_.get()));
  if (line_ == nullptr) return false;
  HistEventW ignored = {};
  ::history_w(history_.get(), &ignored, H_SETSIZE, kMostHistory);
  ::history_w(history_.get(), &ignored, H_SETUNIQUE, 1);
  ::el_wset(line_.get(), EL_CLIENTDATA, static_cast<void*>(this));
  ::el_wset(line_.get(), EL_PROMPT, &LibeditEditor::show_prompt);
  ::el_wset(line_.get(), EL_GETCFN, &LibeditEditor::read_character);
  ::el_wset(line_.get(), EL_HIST, &::history_w, history_.get());
  ::el_wset(line_.get(), EL_SIGNAL, 0);
  ::el_wset(line_.get(), EL_EDITOR, L"emacs");
  bind_keys();
  // Keys are read as they are, also those that came during an answer, when Ctrl-C is a signal: as
  // lines of the system's they would end at 4,095 bytes.
  for (const wchar_t* const mode : {L"-d", L"-x"}) {
    for (const wchar_t* const off :
         {L"-icanon", L"-echo", L"-iexten", L"-icrnl", L"-inlcr", L"-igncr", L"-ixon"}) {
      ::el_wset(line_.get(), EL_SETTY, mode, off, nullptr);
    }
  }
  ::el_wset(line_.get(), EL_SETTY, L"-d", L"-isig", nullptr);
  return true;
}

void LibeditEditor::bind_keys() {
  struct Key {
    const wchar_t* sent;
    const wchar_t* command;
  };
  constexpr Key kKeys[] = {
      {L"\t", L"ed-insert"},
      {L"\033[3~", L"ed-delete-next-char"},  // Delete
      {L"\033[1~", L"ed-move-to-beg"},       // Home
      {L"\033[7~", L"ed-move-to-beg"},       // Home
      {L"\033[4~", L"ed-move-to-end"},       // End
      {L"\033[8~", L"ed-move-to-end"},       // End
      {L"\033[1;5D", L"ed-prev-word"},       // Ctrl-Left
      {L"\033[1;5C", L"em-next-word"},       // Ctrl-Right
      {L"\x12", L"em-inc-search-prev"},      // Ctrl-R
      {L"\x17", L"ed-delete-prev-word"},     // Ctrl-W
      {L"\033[5~", L"ed-prev-history"},      // Page up
      {L"\033[6~", L"ed-next-history"},      // Page down
  };
  for (const Key& key : kKeys) {
    ::el_wset(line_.get(), EL_BIND, key.sent, key.command, nullptr);
  }
}

int LibeditEditor::read_character(EditLine* line, wchar_t* character) {
  return of(line).next_character(*character);
}

// As libedit wants it: 1, a character; 0, the end; -1, no more of this line.
int LibeditEditor::next_character(wchar_t& character) {
  while (!interrupted_) {
    if (typed_taken_ < typed_.size()) {
      character = typed_[typed_taken_++];
      return 1;
    }
    TerminalInput::Event event = input_.next();
    switch (event.kind) {
      case TerminalInput::Kind::kEnd:
        return 0;
      case TerminalInput::Kind::kInterrupted:
        interrupted_ = true;
        break;
      case TerminalInput::Kind::kPaste:
      case TerminalInput::Kind::kTooLong:
        typed_ = typed_for(std::move(event));
        typed_taken_ = 0;
        break;
      case TerminalInput::Kind::kCharacter:
        character = static_cast<wchar_t>(event.character);
        if (character == kInterruptKey) {
          interrupted_ = true;
        } else if (character == kStopKey) {
          modes_.stop();
          on_signal();
        } else if (character == kQuitKey) {
          modes_.quit();
        } else {
          return 1;
        }
    }
  }
  errno = EINTR;
  return -1;
}

std::wstring LibeditEditor::typed_for(TerminalInput::Event paste) {
  if (paste.kind == TerminalInput::Kind::kPaste) {
    if (is_typed_as_it_is(paste.text)) return wide_text(paste.text);
    const auto placeholder = pastes_.keep(std::move(paste.text), written());
    if (placeholder) return wide_text(*placeholder);
  }
  say(fmt::format("A paste of {} bytes is left out: a message takes {} MiB of them at most.",
                  paste.bytes, kMostPastedBytes >> 20));
  return {};
}

std::string LibeditEditor::written() const {
  const LineInfoW* const info = ::el_wline(line_.get());
  return narrow_text({info->buffer, static_cast<std::size_t>(info->lastchar - info->buffer)});
}

void LibeditEditor::say(std::string_view words) {
  note("");
  note(words);
  draw();
}

void LibeditEditor::draw() {
  ::el_wset(line_.get(), EL_REFRESH);
}

bool LibeditEditor::on_signal() {
  if (modes_.needs_drawing()) {
    ::el_resize(line_.get());
    draw();
  }
  return interrupt_.interrupted();
}

Result<bool> LibeditEditor::read(std::string& line) {
  line.clear();
  interrupted_ = false;
  int length = 0;
  ::el_wset(line_.get(), EL_PREP_TERM, 1);  // before the prompt asks for keys
  modes_.mark_pastes();
  const wchar_t* got = nullptr;
  {
    const Utf8Locale locale;
    got = ::el_wgets(line_.get(), &length);
  }
  if (interrupted_) {
    typed_.clear();
    typed_taken_ = 0;
    const bool was_empty = written().empty();
    note("^C");
    if (was_empty) note("Ctrl-D leaves.");
    return true;
  }
  if (got == nullptr || length <= 0) return false;
  std::wstring wide(got, static_cast<std::size_t>(length));
  while (wide.ends_with(L'\n') || wide.ends_with(L'\r')) wide.pop_back();
  if (!wide.empty()) {
    HistEventW ignored = {};
    ::history_w(history_.get(), &ignored, H_ENTER, wide.c_str());
  }
  line = pastes_.expand(narrow_text(wide));
  if (line.size() > kMostPromptBytes) {
    return invalid_argument("a message is over {} MiB: no prompt is", kMostPromptBytes >> 20);
  }
  return true;
}

}  // namespace

std::unique_ptr<LineEditor> LineEditor::open(const std::string& prompt,
                                             const InterruptGuard& interrupt) {
  if (!stdin_is_terminal() || !stderr_is_terminal()) return nullptr;
  const char* const kind = std::getenv("TERM");
  if (kind == nullptr || *kind == '\0' || std::string_view(kind) == "dumb") return nullptr;
  auto editor = std::make_unique<LibeditEditor>(prompt, interrupt);
  if (!editor->start()) return nullptr;
  return editor;
}

}  // namespace kakeya::cli
