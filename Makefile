# The commands, and what they are made of. Each sets up what it needs.
PY := .venv/bin/python
SHELL := /bin/bash
# What the browser's tests play, and check as it is exported.
EXPORTS := test/models/browser_gallery.py test/portable/browser_programs.py \
	test/cpp/browser_plans.py

.PHONY: demo smoke site web web-test chromium web-long web-bench test other-tests test-all \
	lint types unit long first-driver swiftshader conformance conformance-all opinfo \
	fuzz-quick fuzz sanitize soak bench lock clean

demo:  ## run two real models on the GPU, beside eager and XNNPACK
	@scripts/setup.sh demo
	@$(PY) examples/demo.py

smoke:  ## every stage once, in less than a minute
	@scripts/setup.sh smoke
	@$(PY) -m pytest -q test/test_smoke.py

test:  ## set up and run all that decides whether a change is right
	@scripts/setup.sh test onnx
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint types
	@$(MAKE) --no-print-directory -j2 unit other-tests

# Beside `unit`, so that no core waits for the end of a part. What they print comes at
# their end, so that both can be read.
other-tests:
	@mkdir -p build
	@$(MAKE) --no-print-directory -j1 web-test conformance fuzz-quick \
		> build/other-tests.log 2>&1; status=$$?; cat build/other-tests.log; exit $$status

test-all:  ## that, and every longer test; takes some hours
	@$(MAKE) --no-print-directory test web-long long first-driver conformance-all \
		opinfo fuzz sanitize soak

site:  ## the documentation as a site, in build/site
	@scripts/setup.sh site
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

web:  ## build the browser's runtime and pages, export the gallery's models, serve them
	@scripts/setup.sh test
	@cd web && ../scripts/npm.sh run build && ../scripts/npm.sh run site
	@$(PY) examples/gallery build/gallery --jobs 2
	@$(PY) -m executorch_webgpu serve

web-test:  ## the browser's part: unit tests, and all that is played in Chromium
	@scripts/setup.sh test onnx
	@$(PY) -m pytest -n 2 -q $(EXPORTS)
	@$(MAKE) --no-print-directory chromium

chromium:
	@cd web && ../scripts/npm.sh run --silent build && ../scripts/npm.sh run --silent site
	@cd web && ../scripts/npm.sh run --silent test

web-long:  ## the gallery by kernels for GPUs, which take minutes on a software adapter
	@$(PY) examples/gallery build/gallery --jobs 2
	@cd web && FOR_GPUS=1 ../scripts/npm.sh run --silent test -- --project browser \
		test/browser/gallery_pictures.test.ts test/browser/gallery_sound.test.ts \
		test/browser/gallery_text.test.ts

web-bench:  ## ours beside onnxruntime-web, in a headless Chromium
	@scripts/setup.sh test onnx
	@$(PY) examples/gallery build/gallery classify cutout enlarge search pitch story chat \
		--onnx --jobs 2
	@cd web && ../scripts/npm.sh run --silent bench -- ../build/web/bench.json

lint:
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	.venv/bin/lint-imports --no-cache
	.venv/bin/clang-format --dry-run --Werror \
		csrc/*/*.cpp csrc/*/*.h csrc/include/*/*.h test/*/*.cpp test/*/*.h \
		examples/cpp/*.cpp examples/cpp/*.h
	@cd web && ../scripts/npm.sh run --silent check

types:
	$(PY) -m mypy

unit:
	$(PY) -m pytest -n 2 -q

long:  ## the tests that `unit` leaves out
	@scripts/setup.sh test
	TEST_ON_FIRST_DRIVER=1 $(PY) -m pytest -n 2 -q -m long

first-driver:  ## kernels for GPUs on the driver that `unit` has those for CPUs on
	@scripts/setup.sh test
	TEST_ON_FIRST_DRIVER=1 $(PY) -m pytest -n 2 -q test/ops test/lowered test/test_dawn.py

conformance:  ## ExecuTorch's own backend suite against us
	@$(PY) test/conformance -n 2
	@$(PY) test/conformance -n 2 --sample

conformance-all:  ## every flow and every model of that suite; takes an hour
	@scripts/setup.sh test
	@$(PY) test/conformance -n 2 --flow webgpu --flow webgpu_fp16 \
		--flow webgpu_static_int8
	@$(PY) test/conformance -n 2 --suite models --flow webgpu --flow webgpu_fp16 \
		--flow webgpu_static_int8

opinfo:  ## PyTorch's own samples of every op in every type; takes an hour
	@scripts/setup.sh test
	@$(PY) test/opinfo -n 2

fuzz-quick:  ## mutants of small programs, with fixed seeds; takes three minutes
	@$(PY) test/fuzz --count 40000 --processes 2
	@$(PY) test/fuzz --count 12000 --processes 2 --gpu

fuzz:  ## the same for an hour, with other seeds every time
	@scripts/setup.sh test
	@seed=$$(date +%s)000000; \
	$(PY) test/fuzz --seconds 3600 --seed $$seed & plan=$$!; \
	$(PY) test/fuzz --seconds 3600 --seed $$seed --gpu; run=$$?; \
	wait $$plan && exit $$run

sanitize:  ## the shim's tests with ASan and UBSan, and with TSan
	@scripts/setup.sh test
	@scripts/sanitize.sh

swiftshader:  ## the op tests on SwiftShader alone; `test` runs them on both
	@scripts/setup.sh test
	scripts/swiftshader.sh

bench:  ## ours beside the peers, in one run
	@scripts/setup.sh demo test bench
	@$(PY) -m benchmarks

soak:  ## 100,000 calls and 3,000 loads from eight threads: is anything left, or wrong?
	@scripts/setup.sh test
	@$(PY) test/soak.py

lock:  ## requirements/*.in to requirements/*.txt, by version and hash
	@scripts/lock.sh

clean:
	rm -rf .venv build web/dist web/node_modules *.egg-info executorch_webgpu/*/_schema \
		executorch_webgpu/*.so executorch_webgpu/include executorch_webgpu/lib \
		executorch_webgpu/cmake/*-version.cmake
