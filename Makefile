# Short names for `python3 dev.py ...`, which needs nothing but Python.
PYTHON ?= python3
.PHONY: demo test check lint types contracts picture bench gpu-check clean

demo test check lint types contracts picture bench gpu-check:
	@$(PYTHON) dev.py $@ $(ARGS)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
