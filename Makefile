# make demo      virtual environment, build, every algorithm on the embedded digits, reports/demo.html
# make test      the C++ tests on this machine's instruction set, pytest: minutes, while one works
# make test-all  and on older instruction sets, for aarch64, under sanitizers, of the wheel, and what
#                docs/extending.md tells, and a stream larger than memory
# make bench     everything that is said about speed, measured here: bench/results and docs/performance.md
# make lint      ruff, mypy, clang-format, the type stubs
PYTHON ?= python3
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo test test-all test-cpp test-python test-models test-isa test-aarch64 test-sanitizers \
        test-wheel test-extending test-stream bench bench-page lint format stubs wheels clean

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where changes are judged, a warning is an error; a user's newer compiler may have new ones.
STRICT := -DLEASHED_WERROR=$(if $(CI),ON,OFF)
export CMAKE_ARGS := $(STRICT)
SOURCES := $(shell find pyproject.toml CMakeLists.txt cmake cpp bindings src -type f -not -name '*.pyc')
CPP = git ls-files '*.h' '*.cc'
WHEEL = $(wildcard dist/leashed-*-linux_*.whl)

demo: .venv/installed
	$(BEGIN)
	mkdir -p reports
	rm -f reports/demo.jsonl
	leashed bench scaling --model mlp --threads 1,2,8 --repeats 3 --batch-size 16 --epsilon 0.5,0.1 \
	  --seconds 10 --evaluate-every 0.1 --output reports/demo.jsonl
	leashed report reports/demo.jsonl -o reports/demo.html

# Two at once: pytest keeps one core busy; the C++ tests, then the protocols' models, the other.
test: .venv/test
	$(MAKE) -j2 test-cpp test-python test-models

test-all: test test-isa test-aarch64 test-sanitizers test-wheel test-extending test-stream

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
	python -m pip install -q "$(WHEEL)[ray]" || echo "Ray cannot be had here: its tests are skipped"
	python -m pip install -q "$(WHEEL)[mpi]" "mpich>=4,<6" || \
	  echo "MPICH cannot be had here: its tests are skipped"
	touch $@

.venv/test-all: .venv/test
	.ci/require test-all
	python -m pip install -q "$(WHEEL)[wheel]"
	touch $@

.venv/dev: .venv/installed
	python -m pip install -q "$(WHEEL)[dev]"
	touch $@

# What a build prints is shown where it fails.
BUILD = mkdir -p build/$(1) && { cmake -S . -B build/$(1) -G Ninja -DLEASHED_PYTHON=OFF \
    -DLEASHED_TESTS=ON $(STRICT) $(2) && cmake --build build/$(1) $(3); } >build/$(1)/log 2>&1 \
  || { cat build/$(1)/log; exit 1; }
CTEST = ctest --test-dir build/$(1) --output-on-failure --timeout 300 --no-tests=error

# `make test` and the CI's log tell when each part began.
BEGIN = @echo "=== $$(date +%T) $@"

test-cpp: .venv/test
	$(BEGIN)
	$(call BUILD,release)
	tests/packaging/check-kernels build/release
	$(call CTEST,release)

test-python: .venv/test
	$(BEGIN)
	pytest --ignore-glob='*_model.py'

test-models: .venv/test
	$(BEGIN)
	pytest tests/*_model.py

# The levels that a CPU newer than x86-64-v2 does not choose by itself; benchmarks compile.
test-isa: .venv/test
	$(BEGIN)
	$(call BUILD,release,-DLEASHED_BENCH=ON)
	for isa in $$(/lib64/ld-linux-x86-64.so.2 --help | sed -n 's/^  x86-64-\(v[23]\) (supported.*/\1/p'); do \
	  LEASHED_ISA=$$isa $(call CTEST,release); \
	done

test-aarch64: .venv/test-all
ifeq ($(shell uname -m),x86_64)
	$(BEGIN)
	$(call BUILD,aarch64,--toolchain cmake/aarch64-linux-gnu.cmake)
	$(call CTEST,aarch64)
endif

# Some settings of Linux's address-space randomisation keep ThreadSanitizer from starting, so it is
# switched off where that is allowed.
test-sanitizers: .venv/test-all
	$(BEGIN)
	$(call BUILD,thread,-DLEASHED_SANITIZE=thread,--target test_base test_vector test_update \
	  test_staleness test_data test_table test_model test_sparse test_discipline test_engine test_net test_policy test_cluster \
	  test_server test_simulation)
	tests/packaging/check-kernels build/thread
	fixed=$$(setarch -R echo setarch -R 2>/dev/null || true); \
	  TSAN_OPTIONS=halt_on_error=1 $$fixed $(call CTEST,thread) -R '^(base|net|vector|update|staleness|data|table|sparse|discipline|engine|policy|cluster|server|simulation)$$'
	# Nothing else of the models' has threads, and all of it would take many minutes.
	fixed=$$(setarch -R echo setarch -R 2>/dev/null || true); \
	  TSAN_OPTIONS=halt_on_error=1 $$fixed build/thread/tests/cpp/test_model -tc='*while others write them'
	$(call BUILD,address,-DLEASHED_SANITIZE=address)
	tests/packaging/check-kernels build/address
	ASAN_OPTIONS=detect_leaks=1 $(call CTEST,address)

test-wheel: .venv/test-all
	$(BEGIN)
	tests/packaging/check-wheel $(WHEEL)

test-extending: .venv/test-all
	$(BEGIN)
	tests/packaging/check-extending

# A gzip stream of more than the memory there is to be; --gigabytes 20 --memory 2 takes an hour.
test-stream: .venv/test-all
	$(BEGIN)
	python tests/stream/little_memory.py --gigabytes 1 --memory 0.9

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
	$(BEGIN)
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

wheels: .venv/test-all
	tests/packaging/check-pythons $(PYTHONS)

clean:
	rm -rf .venv build dist
