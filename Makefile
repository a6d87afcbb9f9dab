# make demo    virtual environment, build, every algorithm on the embedded digits, reports/demo.html
# make test    C++ tests (native, each instruction set, aarch64, sanitizers), the wheel, pytest
# make bench   everything that is said about speed, measured here: bench/results and docs/performance.md
# make lint    ruff, mypy, clang-format, the type stubs
PYTHON ?= python3
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo test test-cpp test-isa test-aarch64 test-sanitizers test-wheel test-python \
        bench bench-page lint format stubs wheels clean

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where changes are judged, a warning is an error; a user's newer compiler may have new ones.
STRICT := -DLEASHED_WERROR=$(if $(CI),ON,OFF)
export CMAKE_ARGS := $(STRICT)
SOURCES := $(shell find pyproject.toml CMakeLists.txt cmake cpp bindings src -type f -not -name '*.pyc')
CPP = git ls-files '*.h' '*.cc'
WHEEL = $(wildcard dist/leashed-*-linux_*.whl)

demo: .venv/installed
	mkdir -p reports
	leashed bench scaling --model mlp --threads 1,2,8 --repeats 3 --batch-size 16 --epsilon 0.5,0.1 \
	  --seconds 10 --evaluate-every 0.1 --output reports/demo.jsonl
	leashed report reports/demo.jsonl -o reports/demo.html

test: test-cpp test-isa test-aarch64 test-sanitizers test-wheel test-python

.venv/created:
	.ci/require python
	$(PYTHON) -m venv .venv
	python -m pip install -q "build>=1.2,<2"
	touch $@

# The wheel is built from the sdist, so what is installed and tested is what is published.
dist/built: .venv/created $(SOURCES)
	rm -rf dist
	python -m build --outdir dist
	touch $@

.venv/installed: dist/built
	python -m pip install -q --force-reinstall --no-deps $(WHEEL)
	python -m pip install -q "$(WHEEL)[plot]"
	touch $@

# PyTorch's CPU build: from where pip is told to look, else from PyTorch's own index. The one on PyPI
# brings gigabytes of CUDA.
TORCH = { python -m pip install -q "torch==2.13.0+cpu" || \
  python -m pip install -q "torch==2.13.0" --index-url https://download.pytorch.org/whl/cpu; }

.venv/test: .venv/installed
	.ci/require test
	python -m pip install -q "$(WHEEL)[test]"
	$(TORCH) || echo "PyTorch's CPU build cannot be had here: the tests that need it are skipped"
	touch $@

.venv/dev: .venv/installed
	python -m pip install -q "$(WHEEL)[dev]"
	touch $@

BUILD = cmake -S . -B build/$(1) -G Ninja -DLEASHED_PYTHON=OFF -DLEASHED_TESTS=ON $(STRICT) $(2) \
  && cmake --build build/$(1)
CTEST = ctest --test-dir build/$(1) --output-on-failure --timeout 300 --no-tests=error

test-cpp: .venv/test
	$(call BUILD,release,-DLEASHED_BENCH=ON)
	tests/packaging/check-kernels build/release
	$(call CTEST,release)

# The levels that a CPU newer than x86-64-v2 does not choose by itself.
test-isa: test-cpp
	for isa in $$(/lib64/ld-linux-x86-64.so.2 --help | sed -n 's/^  x86-64-\(v[23]\) (supported.*/\1/p'); do \
	  LEASHED_ISA=$$isa $(call CTEST,release); \
	done

test-aarch64: .venv/test
ifeq ($(shell uname -m),x86_64)
	$(call BUILD,aarch64,--toolchain cmake/aarch64-linux-gnu.cmake)
	$(call CTEST,aarch64)
endif

# Some settings of Linux's address-space randomisation keep ThreadSanitizer from starting, so it is
# switched off where that is allowed.
test-sanitizers: .venv/test
	$(call BUILD,thread,-DLEASHED_SANITIZE=thread) --target test_vector test_engine test_discipline
	fixed=$$(setarch -R echo setarch -R 2>/dev/null || true); \
	  TSAN_OPTIONS=halt_on_error=1 $$fixed $(call CTEST,thread) -R '^(vector|engine|discipline)$$'
	$(call BUILD,address,-DLEASHED_SANITIZE=address)
	ASAN_OPTIONS=detect_leaks=1 $(call CTEST,address)

test-wheel: .venv/test
	tests/packaging/check-wheel $(WHEEL)

test-python: .venv/test
	pytest

.venv/bench: .venv/installed bench/requirements.txt
	$(TORCH)
	python -m pip install -q -r bench/requirements.txt
	touch $@

# BENCH: arguments of bench/run.py, such as BENCH="--scale 0.1" for a look of two minutes.
bench: .venv/bench
	cmake -S . -B build/bench -G Ninja -DLEASHED_PYTHON=OFF -DLEASHED_BENCH=ON $(STRICT)
	cmake --build build/bench
	python -m bench.run $(BENCH)
	python -m bench.page

# The page once more from the results that are there.
bench-page: .venv/bench
	python -m bench.page

lint: .venv/dev
	ruff check
	ruff format --check
	mypy
	$(CPP) | xargs clang-format --dry-run -Werror
	$(STUBS) && diff -u src/leashed/_core.pyi build/stubs/leashed/_core.pyi

format: .venv/dev
	ruff check --fix
	ruff format
	$(CPP) | xargs clang-format -i

# The type stubs of the extension module, from the module itself.
STUBS = pybind11-stubgen leashed._core -o build/stubs && ruff format -q build/stubs/leashed/_core.pyi
stubs: .venv/dev
	$(STUBS) && cp build/stubs/leashed/_core.pyi src/leashed/_core.pyi

wheels: .venv/test
	tests/packaging/check-pythons $(PYTHONS)

clean:
	rm -rf .venv build dist
