# Writes OUTPUT, a header that names the commit of SOURCE_DIR and whether its files differ from it.
# Runs with every build (cmake -P); the header is only touched when it changes.
cmake_minimum_required(VERSION 3.25)
set(commit "")
set(changed false)
find_program(git git)
if(git)
  execute_process(
    COMMAND ${git} -C ${SOURCE_DIR} rev-parse --verify --quiet HEAD
    OUTPUT_VARIABLE commit
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(commit)
  execute_process(
    COMMAND ${git} -C ${SOURCE_DIR} status --porcelain --untracked-files=no
    OUTPUT_VARIABLE differences
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(differences)
    set(changed true)
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT}
     CONTENT "// Made by cmake/commit.cmake.
#pragma once

namespace kakeya::cli {

inline constexpr const char* kCommit = \"@commit@\";  // empty: not built in a clone
inline constexpr bool kCommitIsDirty = @changed@;     // tracked files differed from it

}  // namespace kakeya::cli
" @ONLY)
