# Every target sets up what it needs in .venv; a second run is quick. The work is done by scripts/.

SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help demo test soak schedules chaos fuzz check lint bench coverage docs wheel release-check develop clean

NAME ?=
ARGS ?=

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## the same job by Headgate and by Spark on real data, compared row by row; ARGS=stream for a streaming job that is killed
	@[ "$(firstword $(ARGS))" = stream ] || scripts/java.sh
	@scripts/develop.sh
	@.venv/bin/python -m headgate demo $(ARGS)

test: ## what must pass before a commit: cargo's tests, then pytest's; ARGS="-k name" goes to pytest alone
	@scripts/java.sh
	@scripts/test.sh $(ARGS)

soak: ## all other tests, part by part; ARGS="loom chaos" for some, ARGS="--list" names them
	@scripts/java.sh
	@scripts/soak.sh $(ARGS)

schedules: ## all orders of small connections, a million random ones of larger, of checkpoints, and of readers; ARGS="--seed 1 --count 1" for the last
	@scripts/schedules.sh $(ARGS)

chaos: ## 500 exchanges with one random fault each, on local-cluster; ARGS="50 -x" for fifty, up to the first that fails
	@scripts/java.sh
	@scripts/chaos.sh $(ARGS)

fuzz: ## libFuzzer on every decoder, 10 minutes each; ARGS="pages --seconds 60", --keep
	@scripts/fuzz.sh $(ARGS)

check: ## formats, clippy, ruff, mypy, stubs, floors: everything that needs no test
	@scripts/check.sh

lint: ## the hooks of .pre-commit-config.yaml on all files: workflows, shell, Dockerfile, recipe, formats; needs no build
	@scripts/lint.sh $(ARGS)

bench: ## all benches, or one: make bench NAME=loopback
	@scripts/java.sh
	@scripts/bench.sh $(NAME) $(ARGS)

coverage: ## how many lines of the product make test reaches, and the ten largest holes; ARGS="tests/test_errors.py" for some tests
	@scripts/coverage.sh $(ARGS)

docs: ## dist/docs, the site: pages and reference, without a warning or a link that leads nowhere
	@scripts/docs.sh

wheel: ## dist/*.whl for manylinux; ARGS=--check tries it in a clean environment, ARGS=--twice builds it again and compares
	@scripts/wheel.sh $(ARGS)

release-check: ## wheel, sdist and the wheel without the native module, built twice and checked as an index and a user would
	@scripts/release_check.sh

develop: ## the native module, built and installed into .venv
	@scripts/develop.sh

clean: ## remove what the other targets made in this folder; compiled crates stay in the cache
	@rm -rf .venv .venv-* dist .pytest_cache .mypy_cache .ruff_cache .hypothesis python/headgate/*.so
