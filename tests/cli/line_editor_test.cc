// A person at a terminal: pasted texts, keys, history, and the terminal's modes behind it all.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "cli/listening_server.h"
#include "cli/program.h"
#include "cli/pseudo_terminal.h"

namespace kakeya::test {
namespace {

constexpr std::size_t kPastedBytes = 100'000;

// Lines with numbers, each with this end.
std::string numbered_lines(std::size_t bytes, const std::string& line_end) {
  std::string text;
  for (int number = 0; text.size() < bytes; ++number) {
    text += "line " + std::to_string(number) + " of what was pasted" + line_end;
  }
  text.resize(bytes - line_end.size());
  return text + line_end;
}

class LineEditor : public Cli {
 protected:
  std::string chat() const { return std::string(KAKEYA_BINARY) + " chat --url unix:" + socket_; }
  std::string run_chat() const {
    return std::string(KAKEYA_BINARY) + " run " + kDemoFlag + "--chat --max-tokens 2 --session " +
           folder_ + "/talk";
  }
  // The messages that the session's file keeps.
  std::string session_file() const { return slurp(folder_ + "/talk"); }

  std::string socket_ = folder_ + "/socket";
};

TEST_F(LineEditor, APastedTextIsOneMessageAndWhole) {
  ListeningServer server(socket_);
  PseudoTerminal terminal(chat());
  const std::string text = numbered_lines(kPastedBytes, "\n");
  terminal.wait_for("> ");
  terminal.type("Sum up: ");
  terminal.paste(text);
  terminal.wait_for("lines, 100000 bytes]");
  terminal.type(" Thanks.\r");
  EXPECT_EQ(server.question(0), "Sum up: " + text + " Thanks.");
  terminal.wait_for("> ");
  std::string crlf = numbered_lines(kPastedBytes, "\r\n");
  terminal.paste(crlf);
  terminal.type("\r");
  std::erase(crlf, '\r');
  EXPECT_EQ(server.question(1), crlf);
  terminal.wait_for("> ");
  std::string cr = numbered_lines(kPastedBytes, "\r");  // as terminals send them
  terminal.paste(cr);
  terminal.type("\r");
  std::ranges::replace(cr, '\r', '\n');
  EXPECT_EQ(server.question(2), cr);
  terminal.wait_for("> ");
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait_for_end(), 0);
  EXPECT_EQ(server.questions(), 3U);
  terminal.expect_modes_as_before();
}

TEST_F(LineEditor, RunTakesAPastedTextWhole) {
  PseudoTerminal terminal(run_chat());
  const std::string text = numbered_lines(kPastedBytes, "\n");
  terminal.wait_for("> ");
  terminal.paste(text);
  terminal.type("\r");
  // The demo model's template adds 37 bytes, and its context ends before.
  terminal.wait_for("context of 8192 tokens is exceeded: the prompt has 100037 bytes");
  terminal.wait_for("> ");
  terminal.paste(text.substr(0, 8000));
  terminal.type("\r");
  terminal.wait_for("tokens/s");
  terminal.wait_for("> ");
  terminal.type("/exit\r");
  EXPECT_EQ(terminal.wait_for_end(), 0);
  EXPECT_NE(session_file().find(nlohmann::json(text.substr(0, 8000)).dump()), std::string::npos);
  terminal.expect_modes_as_before();
}

TEST_F(LineEditor, ALongLineWithoutMarksIsWhole) {
  PseudoTerminal terminal(run_chat());
  std::string text = numbered_lines(5000, " ");
  text.back() = '.';
  terminal.wait_for("> ");
  terminal.type(text + "\r");
  terminal.wait_for("tokens/s");
  terminal.wait_for("> ");
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait_for_end(), 0);
  EXPECT_NE(session_file().find(nlohmann::json(text).dump()), std::string::npos);
  terminal.expect_modes_as_before();
}

TEST_F(LineEditor, WhatIsPastedDuringAnAnswerIsWhole) {
  ListeningServer server(socket_);
  PseudoTerminal terminal(chat());
  const std::string text = numbered_lines(kPastedBytes, "\n");
  auto answers = server.hold_answers();
  terminal.wait_for("> ");
  terminal.type("first\r");
  EXPECT_EQ(server.question(0), "first");
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    answers.unlock();
  });
  terminal.paste(text);  // the terminal takes 4,096 bytes of it until the answer is over
  terminal.type("\r");
  later.join();
  EXPECT_EQ(server.question(1), text);
}

TEST_F(LineEditor, NothingOfAPasteReachesTheTerminalAsACommand) {
  ListeningServer server(socket_);
  PseudoTerminal terminal(chat());
  const std::string hostile = "\033]0;title\007\033[31mred\xC2\x9B\x01\x03\x04\x15\x1A";
  terminal.wait_for("> ");
  terminal.paste(hostile);
  terminal.paste("plain t\xC3\xA9xt\twith a tab");
  terminal.wait_for("with a tab");
  terminal.type("\r");
  EXPECT_EQ(server.question(0), hostile + "plain t\xC3\xA9xt\twith a tab");
  terminal.wait_for("> ");
  terminal.type("\x16\033]0;title\r");  // typed behind Ctrl-V it is a character of the line
  EXPECT_EQ(server.question(1), "\033]0;title");
  terminal.wait_for("> ");
  EXPECT_EQ(terminal.seen().find("\033[?2004l"), std::string::npos);  // no signal came
  EXPECT_EQ(terminal.seen().find("\033]0"), std::string::npos);
  EXPECT_EQ(terminal.seen().find("\033[31m"), std::string::npos);
  EXPECT_EQ(terminal.seen().find("\xC2\x9B"), std::string::npos);
}

TEST_F(LineEditor, KeysEditAndGoBack) {
  ListeningServer server(socket_);
  PseudoTerminal terminal(chat());
  terminal.wait_for("> ");
  terminal.type("orld\x01w\x01hello \x05!\r");  // Ctrl-A and Ctrl-E
  EXPECT_EQ(server.question(0), "hello world!");
  terminal.wait_for("> ");
  terminal.type("\033[A\033[D?\r");  // up and left
  EXPECT_EQ(server.question(1), "hello world?!");
  terminal.wait_for("> ");
  terminal.type("\x12rld!\r\r");  // Ctrl-R
  EXPECT_EQ(server.question(2), "hello world!");
  terminal.wait_for("> ");
  terminal.type("t\xC3\xA9x\x7Ft\r");  // a character of two bytes, and backspace
  EXPECT_EQ(server.question(3), "t\xC3\xA9t");
}

TEST_F(LineEditor, APlaceholderThatIsNotWholeDropsItsText) {
  ListeningServer server(socket_);
  PseudoTerminal terminal(chat());
  terminal.wait_for("> ");
  terminal.paste("one\ntwo");
  terminal.type("\x7F\r");
  EXPECT_EQ(server.question(0), "[pasted 1: 2 lines, 7 bytes");
  terminal.wait_for("> ");
  terminal.paste("[pasted 3: 1 line, 2 bytes]\n");
  terminal.paste("a\n");
  terminal.type("\r");
  EXPECT_EQ(server.question(1), "[pasted 3: 1 line, 2 bytes]\na\n");
  terminal.wait_for("> ");
  terminal.type("\033[A again\r");
  EXPECT_EQ(server.question(2), "[pasted 3: 1 line, 2 bytes]\na\n again");
}

TEST_F(LineEditor, APasteBeyondTheLimitIsLeftOutInOneLine) {
  ListeningServer server(socket_);
  PseudoTerminal terminal(chat());
  const std::size_t size = (std::size_t{16} << 20) + 1;
  terminal.wait_for("> ");
  terminal.type("kept");
  terminal.paste(std::string(size, 'a'));
  terminal.wait_for("A paste of 16777217 bytes is left out: a message takes 16 MiB of them");
  terminal.wait_for("> kept");
  terminal.type("\r");
  EXPECT_EQ(server.question(0), "kept");
}

TEST_F(LineEditor, ControlCClearsTheLineAndSignalsPutModesBack) {
  ListeningServer server(socket_);
  PseudoTerminal terminal(chat());
  terminal.wait_for("> ");
  terminal.type("not this\x03");
  terminal.wait_for("^C");
  terminal.wait_for("> ");
  terminal.type("\x03");
  terminal.wait_for("Ctrl-D leaves.");
  terminal.wait_for("> ");
  terminal.type("this\r");
  EXPECT_EQ(server.question(0), "this");
  terminal.wait_for("> ");
  terminal.send(SIGTERM);
  EXPECT_EQ(terminal.wait_for_end(), -SIGTERM);
  terminal.expect_modes_as_before();
}

TEST_F(LineEditor, ControlCEndsAnAnswer) {
  ListeningServer server(socket_);
  PseudoTerminal terminal(chat());
  auto answers = server.hold_answers();
  terminal.wait_for("> ");
  terminal.type("first\r");
  EXPECT_EQ(server.question(0), "first");
  terminal.type("\x03");
  terminal.wait_for("stopped");
  terminal.wait_for("> ");
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait_for_end(), 0);
  terminal.expect_modes_as_before();
}

}  // namespace
}  // namespace kakeya::test
