// The output of the program. Nothing here throws: what could not be written to standard output is
// remembered, and finish_output() turns it into an exit code; what could not be written to standard
// error is lost.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace kakeya::cli {

// Makes standard input, output and error exist, so that no file that is opened takes their place. A
// closed standard output refuses whatever is written to it. Call it first.
void open_standard_streams();

void write_output(std::string_view text);
void write_error(std::string_view text);
// Sends on what was written so far.
void flush_output();

template <typename... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  write_output(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void print_error(fmt::format_string<Args...> format, Args&&... args) {
  write_error(fmt::format(format, std::forward<Args>(args)...));
}

// JSON as text of one line, or indented. What is no UTF-8, as names of files may be, is replaced.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);
// On standard output, with a line's end.
void print_json(const nlohmann::ordered_json& json, int indent = 2);

// The exit code of a program that would end with `exit_code`: 2, after a line on standard error, if
// something of standard output was lost.
int finish_output(int exit_code);

}  // namespace kakeya::cli
