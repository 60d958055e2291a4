# Writes OUTPUT, a source that holds the files FILES (separated by commas) of FOLDER as texts: the page of
# `kakeya serve`. Runs when one of them changes (cmake -P).
cmake_minimum_required(VERSION 3.25)
set(types_html "text/html; charset=utf-8")
set(types_css "text/css; charset=utf-8")
set(types_js "text/javascript; charset=utf-8")
set(types_svg "image/svg+xml")
set(rows "")
string(REPLACE "," ";" names "${FILES}")
foreach(name IN LISTS names)
  file(READ "${FOLDER}/${name}" text)
  string(FIND "${text}" ")page\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR "${FOLDER}/${name}: expected no )page\" in it, which ends the text")
  endif()
  cmake_path(GET name EXTENSION LAST_ONLY extension)
  string(SUBSTRING "${extension}" 1 -1 extension)
  string(APPEND rows "    {\"/page/${name}\", \"${types_${extension}}\", R\"page(${text})page\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Made by cmake/embed.cmake.
#include \"wire/http/page.h\"

namespace kakeya::wire {
namespace {

constexpr PageFile kPageFiles[] = {
${rows}};

}  // namespace

std::span<const PageFile> page_files() {
  return kPageFiles;
}

}  // namespace kakeya::wire
")
