# Warnings, sanitizers and the one interface target that carries them.
add_library(kakeya_compile_options INTERFACE)
target_compile_options(
  kakeya_compile_options
  INTERFACE -Wall
            -Wextra
            -Wshadow
            -Wnon-virtual-dtor
            -Woverloaded-virtual
            -Wundef
            # Products and sums of floats must not be contracted differently from one call site to
            # the next: kernels that want FMA say so, everything else rounds each operation.
            -ffp-contract=off
            # g++ 12 warns of overlapping copies inside std::string::insert where there are none
            # (GCC bug 105329).
            $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
            $<$<BOOL:${KAKEYA_WERROR}>:-Werror>)
if(KAKEYA_SANITIZE)
  target_compile_options(kakeya_compile_options INTERFACE -fsanitize=${KAKEYA_SANITIZE}
                                                          -fno-omit-frame-pointer)
  target_link_options(kakeya_compile_options INTERFACE -fsanitize=${KAKEYA_SANITIZE})
  if(KAKEYA_SANITIZE MATCHES "address")
    target_compile_options(
      kakeya_compile_options
      INTERFACE -fsanitize-ignorelist=${CMAKE_CURRENT_LIST_DIR}/not_sanitized.txt)
  endif()
  if(KAKEYA_SANITIZE MATCHES "undefined")
    target_compile_options(kakeya_compile_options INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()

# kakeya_guides_fuzzers(TARGET): of a library that fuzzers explore, which counts what it ran. Tests and what is around
# the library compile a quarter faster without.
function(kakeya_guides_fuzzers target)
  if(KAKEYA_BUILD_FUZZERS)
    target_compile_options(
      ${target} PRIVATE -fsanitize=fuzzer-no-link
                        -fsanitize-coverage-ignorelist=${PROJECT_SOURCE_DIR}/cmake/not_fuzzed.txt)
  endif()
endfunction()
