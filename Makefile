# The commands of the project; `make help` lists them. CMake does the building (CMakePresets.json).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help packages build test demo asan tsan fuzz lint check format install clean

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
PREFIX ?= /usr/local
CCACHE := $(shell command -v ccache)
CONFIGURE := cmake $(if $(CCACHE),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache) --preset
BINARY := build/release/bin/kakeya

help:
	@echo 'make build      release build, $(BINARY)'
	@echo 'make test       build and run all tests'
	@echo 'make demo       build the binary only and let the demo model answer two questions'
	@echo 'make asan       tests with address and undefined behaviour sanitizers'
	@echo 'make tsan       tests of the threads and the runtime with the thread sanitizer'
	@echo 'make fuzz       each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS) from its kept corpus'
	@echo 'make lint       clang-format, tools/check_*, clang-tidy of FILES=... (default: what differs from main)'
	@echo 'make check      everything, nothing left out: hours'
	@echo 'make format     apply clang-format'
	@echo 'make install    into PREFIX=$(PREFIX)'
	@echo 'make clean      remove build/'

packages:
	@tools/install_packages build

build/release/build.ninja: | packages
	$(CONFIGURE) release

# Compiles each source alone, which clang-tidy wants to know.
build/dev/build.ninja: | packages
	$(CONFIGURE) dev

build: build/release/build.ninja
	cmake --build build/release -j $(JOBS)

test: build
	ctest --preset release -j $(JOBS)
	@build/release/bin/instruction_sets_test --gtest_filter='*Table.Prints' --gtest_brief=1 | grep -v '^\[\|^Running'

demo: build/release/build.ninja
	cmake --build build/release --target kakeya_cli -j $(JOBS)
	@set -x; $(BINARY) run --model models/demo --prompt 'Count from 5 to 12.'
	@set -x; $(BINARY) run --model models/demo --prompt "$$(cat examples/needle.txt)"
	@echo "$(BINARY) serve answers the same over HTTP, as OpenAI's clients ask (docs/serving.md)."

# clang compiles these checks in half of g++'s time. g++ is the compiler whose warnings are errors.
ASAN_SKIPPED ?= $(shell grep -v '^\#' tests/asan_skipped.txt | grep . | paste -sd '|')
asan:
	@tools/install_packages build ci
	$(CONFIGURE) asan-ubsan
	cmake --build build/asan-ubsan -j $(JOBS)
	@! grep -n '^[^#].*[()]' tests/asan_skipped.txt  # too many make CTest take the list for none
	ctest --preset asan-ubsan -j $(JOBS) -E '$(ASAN_SKIPPED)'

# Tests whose code runs in more than one thread.
TSAN_TARGETS ?= thread_pool_test model_test runtime_test
TSAN_TESTS ?= ThreadPool|TwoThreads|SeveralThreads|SessionTest|SpeculativeSession.Truncation
# Long, on no other threads than the rest.
TSAN_SKIPPED ?= SessionTest.(ContinuesFromEveryPlace|GivesTheSameSampledText|FindsStopStrings)
tsan: packages
	$(CONFIGURE) tsan
	cmake --build build/tsan --target $(TSAN_TARGETS) -j $(JOBS)
	ctest --preset tsan -j $(JOBS) -R '$(TSAN_TESTS)' -E '$(TSAN_SKIPPED)' --no-tests=error

fuzz:
	@tools/install_packages build ci
	$(CONFIGURE) asan-ubsan
	cmake --build build/asan-ubsan --target fuzzers -j $(JOBS)
	tools/run_fuzzers build/asan-ubsan/bin $(FUZZ_SECONDS)

lint: build/dev/build.ninja
	@tools/install_packages ci
	tools/lint $(FILES)

check: test
	$(MAKE) lint
	tools/test_install
	$(MAKE) asan ASAN_SKIPPED='^$$'
	$(MAKE) tsan TSAN_TARGETS=all TSAN_TESTS=. TSAN_SKIPPED='^$$'
	$(MAKE) fuzz FUZZ_SECONDS=60
	tools/mutate --all

format:
	git ls-files '*.h' '*.cc' | xargs clang-format -i

install: build
	cmake --install build/release --prefix $(PREFIX)

clean:
	rm -rf build
