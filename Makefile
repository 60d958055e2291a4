# The commands of the project; `make help` lists them. CMake does the building (CMakePresets.json).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help packages grammars build test quick demo mlx mac-report asan tsan fuzz lint check format install package python clean

JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
FUZZ_SECONDS ?= 60
PREFIX ?= /usr/local
comma := ,
# Tests share a precompiled header, which ccache keeps only with these words.
CCACHE := $(if $(shell command -v ccache),cmake;-E;env;CCACHE_SLOPPINESS=pch_defines$(comma)time_macros;CCACHE_BASEDIR=$(CURDIR);ccache)
# Homebrew has no RapidCheck, which tests need, and nobody has seen what Apple's compiler warns of.
ON_A_MAC := $(filter Darwin,$(shell uname -s))
CONFIGURE := cmake $(if $(CCACHE),-DCMAKE_CXX_COMPILER_LAUNCHER="$(CCACHE)") \
  $(if $(ON_A_MAC),-DKAKEYA_BUILD_TESTS=OFF -DKAKEYA_WERROR=OFF) --preset
BINARY := build/release/bin/kakeya

help:
	@echo 'make build      release build, $(BINARY)'
	@echo 'make test       build, fetch two published models (335 MiB, once, if there is a network) and run all tests'
	@echo 'make mlx        fetch MLX into build/mlx-wheel and build the backend mlx, too'
	@echo 'make mac-report with MLX: equality, losslessness and speed on this machine, as a page in build/mac-report'
	@echo 'make quick      format, build and the tests of what differs from main: for every commit'
	@echo 'make demo       build run, serve and chat, fetch SmolLM2 (94 MiB, once), let it answer, and show drafts'
	@echo 'make asan       parsers and runtime with address and undefined behaviour sanitizers'
	@echo 'make tsan       tests of several threads with the thread sanitizer'
	@echo 'make fuzz       each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS) from its kept corpus'
	@echo 'make lint       clang-format, tools/check_*, clang-tidy of FILES=... (default: what differs from main)'
	@echo 'make check      everything, nothing left out: hours'
	@echo 'make format     apply clang-format'
	@echo 'make install    into PREFIX=$(PREFIX)'
	@echo 'make package    the Debian package, in build/release/packages; PACKAGE=TGZ: a tarball'
	@echo 'make python     the Python package: builds the wheel in build/python/wheels, runs python/tests with it'
	@echo 'make clean      remove build/'

packages:
	@tools/install_packages build

# Constrained decoding needs xgrammar; a build without it refuses schemas and grammars.
grammars: | packages
	@tools/build_xgrammar || echo 'Going on without xgrammar: JSON schemas and grammars will be refused.'

# Everything, in place of what `make demo` has built.
CUDA ?= AUTO
build/release/everything: $(wildcard build/xgrammar/installed) | packages grammars
	$(CONFIGURE) release -DKAKEYA_CUDA=$(CUDA)
	touch $@

# Compiles each source alone, which clang-tidy wants to know.
build/dev/build.ninja: $(wildcard build/xgrammar/installed) | packages
	$(CONFIGURE) dev

build: build/release/everything
	cmake --build build/release -j $(JOBS)

# Tests that need a model that is not there are skipped, and name it. SKIPPED: an expression of those that are left out.
SKIPPED ?= NOTHING_IS_LEFT_OUT
test: build
	@tools/fetch_model all || echo 'Going on without: tests that need such a model are skipped.'
	ctest --preset release -j $(JOBS) -E '$(SKIPPED)'
	@build/release/bin/instruction_sets_test --gtest_filter='*Table.Prints' --gtest_brief=1 | grep -v '^\[\|^Running'

# Answers that come out the same on every instruction set, and are true. Where nothing was built, the commands that
# answer are enough, for this machine.
SMOLLM2 := $(or $(KAKEYA_MODELS),build/models)/SmolLM2-135M-Instruct.Q4_1.gguf
build/release/build.ninja:
	@tools/install_packages demo
	$(CONFIGURE) demo
demo: build/release/build.ninja
	cmake --build build/release --target kakeya_cli -j $(JOBS)
	@if tools/fetch_model smollm2; then set -x; \
	  $(BINARY) run $(SMOLLM2) 'What is the capital of Japan?'; \
	  $(BINARY) run $(SMOLLM2) 'Which animal says meow?'; \
	else echo 'Going on without it, with the demo model of the repository.'; fi
	@echo 'A model with a drafter, which was trained for this repository (models/demo): several tokens a pass, the same text.'
	@set -x; $(BINARY) run models/demo 'Count from 5 to 12.'
	@set -x; $(BINARY) run models/demo "$$(cat examples/needle.txt)"
	@echo "$(BINARY) serve FILE answers over HTTP: a page at http://127.0.0.1:8080, and as OpenAI's clients ask (docs/serving.md)."

# The library without its Python package; what it needs of Python is pip.
MLX_PACKAGE := $(if $(ON_A_MAC),mlx-metal,mlx-cpu)
build/mlx-wheel/installed: cmake/mlx_version.txt
	rm -rf build/mlx-wheel
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
	  --target build/mlx-wheel $(MLX_PACKAGE)==$$(cat cmake/mlx_version.txt)
	touch $@

mlx: build/mlx-wheel/installed | packages grammars
	$(CONFIGURE) release -DKAKEYA_MLX=AUTO
	touch build/release/everything
	cmake --build build/release -j $(JOBS)

mac-report: mlx
	tools/mac_report

quick: build
	tools/quick

# What parses bytes from outside, and the runtime; KERNELS=ON sanitizes the CPU backend's units, too.
KERNELS ?= OFF
ASAN_TARGETS ?= formats_test tokenizer_test chat_template_test stop_strings_test bridge_test runtime_test server_test grammar_test
ASAN_SKIPPED ?= $(shell grep -v '^\#' tests/asan_skipped.txt | grep . | paste -sd '|')
asan: | grammars
	@tools/install_packages build ci
	$(CONFIGURE) asan-ubsan -DKAKEYA_SANITIZE_KERNELS=$(KERNELS)
	cmake --build build/asan-ubsan --target $(ASAN_TARGETS) -j $(JOBS)
	@! grep -n '^[^#].*[()]' tests/asan_skipped.txt  # too many make CTest take the list for none
	ctest --preset asan-ubsan -j $(JOBS) -E '_NOT_BUILT|$(ASAN_SKIPPED)|$(SKIPPED)' --no-tests=error

# Tests whose code runs in more than one thread.
TSAN_TARGETS ?= thread_pool_test runtime_test server_test
TSAN_TESTS ?= AnIdleSession|ForgettingChanges|ThreadPool|TimedThread|TwoThreads|SeveralThreads|AtOnce|Driver|Mailbox|HttpServer|ServerLog|ANewcomerTakes|ADrainingServer|ModelsOverHttp
tsan: | grammars
	@tools/install_packages build ci
	$(CONFIGURE) tsan -DKAKEYA_SANITIZE_KERNELS=$(KERNELS) -DKAKEYA_TESTS_NAMED='$(TSAN_TESTS)'
	cmake --build build/tsan --target $(TSAN_TARGETS) -j $(JOBS)
	ctest --preset tsan -j $(JOBS) -R '$(TSAN_TESTS)' -E _NOT_BUILT --no-tests=error

fuzz:
	@tools/install_packages build ci
	$(CONFIGURE) asan-ubsan -DKAKEYA_SANITIZE_KERNELS=$(KERNELS)
	cmake --build build/asan-ubsan --target fuzzers -j $(JOBS)
	tools/run_fuzzers build/asan-ubsan/bin $(FUZZ_SECONDS)

lint: build/dev/build.ninja
	@tools/install_packages ci
	cmake --build build/dev --target generated
	tools/lint $(FILES)

# CTest keeps lists of tests, which are longer here.
forget-tests = @find build -name '*_tests.cmake' -delete
check: export KAKEYA_THOROUGH := 1
check: build
	$(forget-tests)
	$(MAKE) test
	$(MAKE) lint FILES=--all
	tools/test_install
	@tools/install_packages package
	tools/test_package --root
	tools/test_demo
	@tools/install_packages python
	tools/test_python --all
	@tools/install_packages page
	tools/test_page
	tools/test_clients --all
	$(MAKE) build/mlx-wheel/installed && tools/compile_for_mac
	$(MAKE) asan ASAN_TARGETS=all ASAN_SKIPPED='^$$' KERNELS=ON
	$(MAKE) tsan TSAN_TARGETS=all TSAN_TESTS=. KERNELS=ON
	$(MAKE) fuzz FUZZ_SECONDS=60 KERNELS=ON
	$(forget-tests)
	tools/mutate --all

format:
	git ls-files '*.h' '*.cc' | xargs clang-format -i

# Builds what is installed: neither tests nor fuzz targets.
install: build/release/everything
	cmake --build build/release --target kakeya kakeya_cli kakeya_train_cli kakeya_generated -j $(JOBS)
	cmake --install build/release --prefix $(PREFIX)

PACKAGE ?= DEB
package: build/release/everything
	@tools/install_packages package
	$(CONFIGURE) release -DKAKEYA_CUDA=COMPILER
	cmake --build build/release --target kakeya kakeya_cli kakeya_train_cli kakeya_generated -j $(JOBS)
	tools/make_manual $(BINARY) build/release/generated/man
	cd build/release && cpack -G $(PACKAGE)

# Without MLX, CUDA and gRPC, whatever is there.
python: | packages grammars
	@tools/install_packages python
	tools/test_python

clean:
	rm -rf build
