# make           virtual environment, editable install; again after an edit: compiles what changed
# make demo      every algorithm on the embedded digits, reports/demo.html
# make check     while one works: style, types, the house, the tests of what the diff touches: a minute
# make test      the C++ tests on this machine's instruction set, pytest: minutes
# make ci        what .ci/run does besides: processes, sanitizers, NEON, the wheel, docs/extending.md
# make test-all  what takes hours, as much of it as MINUTES= allows
# make bench     everything that is said about speed, measured here: bench/results and docs/performance.md
# make wheel     dist/leashed-*.whl of this Python, for this kind of machine
# make lint      ruff, mypy, clang-format, the type stubs
PYTHON ?= python3
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: dev demo check test ci ci-parts test-all test-cpp test-python test-process test-thread test-address test-aarch64 \
        test-wheel test-extending test-stream test-thread-whole test-address-whole test-levels-whole \
        test-aarch64-whole bench bench-page shadowsync modes lint format stubs wheel wheels clean

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The compiler's name is one for all builds, or the compiler cache takes g++ and c++ for two.
export CXX
# Else each process that a test starts compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE
# Where changes are judged, a warning is an error (a user's newer compiler may have new ones), and
# what is compiled is compiled once, so in batches.
STRICT := -DLEASHED_WERROR=$(if $(CI),ON,OFF)
UNITY := $(if $(CI),ON,OFF)
export CMAKE_ARGS := $(STRICT)
CPP = git ls-files '*.h' '*.cc'

# `make test` and the CI's log tell when each part began.
BEGIN = @echo "=== $$(date +%T) $@"

# Compiles what changed, and lays the extension module beside the package's sources. An import compiles
# nothing.
dev: build/dev/installed
	cmake -S . -B build/dev $(STRICT) -DLEASHED_UNITY=$(UNITY) >build/dev/configure.log
	cmake --build build/dev --target _core -- --quiet
	cmake --install build/dev --prefix src >build/dev/install.log

demo: dev
	$(BEGIN)
	mkdir -p reports
	rm -f reports/demo.jsonl
	leashed bench scaling --model mlp --threads 1,2,8 --repeats 3 --batch-size 16 --epsilon 0.5,0.1 \
	  --seconds 10 --evaluate-every 0.1 --output reports/demo.jsonl
	leashed report reports/demo.jsonl -o reports/demo.html

# What building needs is installed beside the package, since an isolated build has its compiler's
# arguments, and so all objects, for itself.
.venv/created: pyproject.toml
	.ci/require python
	$(PYTHON) -m venv .venv
	python -m pip install -q "build>=1.2,<2" "cmake>=3.20,<5" "ninja>=1.11,<2" \
	  $$(sed -n 's/^requires = \[\(.*\)\]/\1/p' pyproject.toml | tr -d ' "' | sed 's/,\([a-z]\)/ \1/g')
	touch $@

# A path takes the place of scikit-build-core's finder, which would go before PYTHONPATH, so that no
# other tree's package could be measured or compared, and knows the files that there were.
build/dev/installed: .venv/created
	python -m pip install -q --no-build-isolation --config-settings=build-dir=build/dev \
	  --config-settings=build.targets=_core --config-settings=cmake.define.LEASHED_UNITY=$(UNITY) -e ".[plot]"
	cd "$$(python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"; \
	  rm -rf leashed *editable*leashed*; echo $(CURDIR)/src >leashed_sources.pth
	cmake --install build/dev --prefix src >build/dev/install.log
	touch $@

# PyTorch's CPU build: from where pip is told to look, else from PyTorch's own index. The one on PyPI
# brings gigabytes of CUDA.
TORCH = { python -m pip install -q "torch==2.13.0+cpu" || \
  python -m pip install -q "torch==2.13.0" --index-url https://download.pytorch.org/whl/cpu; }

.venv/test: build/dev/installed
	.ci/require test
	python -m pip install -q "leashed[test]"
	$(TORCH) || echo "PyTorch's CPU build cannot be had here: the tests that need it are skipped"
	python -m pip install -q "leashed[ray]" || echo "Ray cannot be had here: its tests are skipped"
	python -m pip install -q "leashed[mpi]" "mpich>=4,<6" || \
	  echo "MPICH cannot be had here: its tests are skipped"
	touch $@

.venv/ci: .venv/test
	.ci/require ci
	python -m pip install -q "leashed[wheel]"
	touch $@

.venv/dev: build/dev/installed
	python -m pip install -q "leashed[dev]"
	touch $@

# Two at once: pytest has both cores where it can, the C++ tests what is left of them.
test: .venv/test dev
	$(MAKE) -j2 test-cpp test-python

# What a build prints is shown where it fails. Ninja would take part in the job server of `make -j2`,
# which these recipes do not hand on.
BUILD = unset MAKEFLAGS; mkdir -p build/$(1) && { cmake -S . -B build/$(1) -G Ninja $(STRICT) -DLEASHED_TESTS=ON $(2) && \
    cmake --build build/$(1) $(3); } >build/$(1)/log 2>&1 || { cat build/$(1)/log; exit 1; }
COLD = -DLEASHED_PYTHON=OFF -DLEASHED_UNITY=ON
ONE_ISA := -DLEASHED_ONE_ISA=$(if $(shell grep -m1 -w avx2 /proc/cpuinfo),v3)
COMMA := ,
ANY = $(subst $() $(),|,$(strip $(1)))
CTEST = ctest --test-dir build/$(1) --output-on-failure --timeout 600 --no-tests=error

# The C++ tests link the very objects that the extension module is made of.
test-cpp: .venv/test dev
	$(BEGIN)
	$(call BUILD,dev,-DLEASHED_BENCH=$(UNITY))
	tests/packaging/check-kernels build/dev
	$(call CTEST,dev)

test-python: .venv/test dev
	$(BEGIN)
	env -u MAKEFLAGS pytest -n 2 --dist worksteal --durations 30 -m "not process and not long"

check: .venv/test .venv/dev dev
	ruff check
	ruff format --check
	mypy
	python tests/touched.py >build/touched
	pytest -q -n 2 -m "not process and not long" $$(<build/touched)
	python tests/touched.py --cpp >build/touched
	if [ -s build/touched ]; then \
	  $(call BUILD,dev,,--target $$(sed 's/^/test_/' build/touched)); \
	  $(call CTEST,dev) -R "^($$(paste -sd '|' build/touched))$$"; \
	fi

CI_PARTS := test-process test-thread test-address test-aarch64 test-wheel test-extending test-stream
ci: $(CI_PARTS)
ci-parts:
	@echo $(CI_PARTS)

test-process: .venv/test dev
	$(BEGIN)
	# (To collect the others takes half a minute.)
	pytest -n 2 --dist worksteal --durations 20 -m "process and not long" $$(grep -rl --include='test_*.py' mark.process tests)

# Some settings of Linux's address-space randomisation keep ThreadSanitizer from starting, so it is
# switched off where that is allowed. A test asks for more memory than there is, and is to hear that.
TSAN = TSAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1 $$(setarch -R echo setarch -R 2>/dev/null || true)
THREADS := base net vector update staleness data table row_store sparse discipline server trace engine \
  backend modes training faults policy cluster simulation
test-thread: .venv/ci
	$(BEGIN)
	$(call BUILD,thread,$(COLD) $(ONE_ISA) -DLEASHED_SANITIZE=thread,--target $(addprefix test_,$(THREADS) graph))
	tests/packaging/check-kernels build/thread
	$(TSAN) $(call CTEST,thread) -j2 -R '^($(call ANY,$(THREADS)))$$'
	# Nothing else of the graphs' has threads, and all of it would take many minutes.
	$(TSAN) build/thread/tests/cpp/test_graph -tc='*while others write them' \
	  >build/thread/graph.log 2>&1 || { cat build/thread/graph.log; exit 1; }
	grep 'test cases: *[1-9]' build/thread/graph.log  # a filter of doctest's may find none

test-thread-whole: .venv/ci
	$(call BUILD,thread,$(COLD) -DLEASHED_ONE_ISA= -DLEASHED_SANITIZE=thread)
	$(TSAN) $(call CTEST,thread) --timeout 3000

# The tests' own objects are those of `make test-cpp`, which the compiler cache has: what is checked is the core.
ADDRESS := ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
test-address: .venv/ci
	$(BEGIN)
	$(call BUILD,address,$(COLD) -DLEASHED_SANITIZE=address$(COMMA)undefined -DLEASHED_SANITIZE_TESTS=OFF)
	tests/packaging/check-kernels build/address
	$(ADDRESS) $(call CTEST,address) -j2

test-address-whole: .venv/ci
	$(call BUILD,address-whole,$(COLD) -DLEASHED_SANITIZE=address$(COMMA)undefined)
	$(ADDRESS) $(call CTEST,address-whole) --timeout 3000

# All C++ tests at each of the older levels; kernels are tested at every one by the loops that their
# tests have.
test-levels-whole: .venv/test test-cpp
	levels=$$(python -c "import leashed._core as core; print(*core.available_isas())"); \
	for isa in $${levels% *}; do LEASHED_ISA=$$isa $(call CTEST,dev); done

# Those that run kernels; the others test what is compiled from the same source on x86-64.
KERNELS := update data table kernels columns graph network
test-aarch64: .venv/ci
ifeq ($(shell uname -m),x86_64)
	$(BEGIN)
	$(call BUILD,aarch64,$(COLD) --toolchain cmake/aarch64-linux-gnu.cmake,--target $(addprefix test_,$(KERNELS)))
	$(call CTEST,aarch64) -j2 -R '^($(call ANY,$(KERNELS)))$$'
endif

test-aarch64-whole: .venv/ci
	$(call BUILD,aarch64,$(COLD) --toolchain cmake/aarch64-linux-gnu.cmake)
	$(call CTEST,aarch64) --timeout 3000

# Built from the sdist, so what is tested is what is published; at every level of this CPU.
test-wheel: .venv/ci
	$(BEGIN)
	rm -rf dist
	python -m build --no-isolation --outdir dist
	tests/packaging/check-wheel dist/leashed-*-linux_*.whl

test-extending: .venv/ci
	$(BEGIN)
	tests/packaging/check-extending

# A gzip stream of more than the memory there is to be.
test-stream: .venv/test dev
	$(BEGIN)
	python tests/stream/little_memory.py --gigabytes 1 --memory 0.9

MINUTES ?= 60
test-all: .venv/ci .venv/dev dev
	tests/everything.py --minutes $(MINUTES)

.venv/bench: build/dev/installed bench/requirements.txt
	$(TORCH)
	python -m pip install -q -r bench/requirements.txt
	touch $@

# BENCH: arguments of bench/run.py, such as BENCH="--scale 0.1" for a look of two minutes.
bench: .venv/bench dev
	cmake -S . -B build/bench -G Ninja -DLEASHED_PYTHON=OFF -DLEASHED_BENCH=ON $(STRICT)
	cmake --build build/bench
	python -m bench.run $(BENCH)
	python -m bench.page

# Tables 2 and 3 and Figures 6 to 8 of the ShadowSync paper, a model of clicks over embedding servers: in
# virtual time at the paper's scale, and small over sockets. Runs that build/ has are not made again.
shadowsync: .venv/test dev
	leashed bench shadowsync --embedding-servers --resume -o build/shadowsync-embedding-servers.jsonl
	python -m bench.shadowsync_sockets --output build/shadowsync-sockets.jsonl
	python -m bench.shadowsync_paced --output build/shadowsync-paced.jsonl

# Tables 2 and 3 and Figure 6 of GBA and Figure 6 of SHAT, small, over sockets, beside virtual time. Seeds
# that build/ has are not run again.
modes: .venv/test dev
	python -m bench.modes_sockets gba --output build/gba-sockets.jsonl
	python -m bench.modes_sockets shat --output build/shat-sockets.jsonl

# The page once more from the results that are there.
bench-page: .venv/bench
	python -m bench.page

lint: .venv/dev dev
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
stubs: .venv/dev dev
	$(STUBS) && cp build/stubs/leashed/_core.pyi src/leashed/_core.pyi

wheel: .venv/created
	python -m build --no-isolation --wheel --outdir dist

wheels: .venv/ci
	rm -f dist/*.tar.gz
	python -m build --no-isolation --sdist --outdir dist
	tests/packaging/check-pythons $(PYTHONS)

clean:
	rm -rf .venv build dist
