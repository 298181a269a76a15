# The two commands of a fresh machine are `make demo` and `make test`.
# Each target is a script of its own name in scripts/, or one command.

.PHONY: help setup wheel test clean
.DEFAULT_GOAL := help

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
		|| grep '##' $(MAKEFILE_LIST)

setup: ## get this machine ready (called by the others)
	@scripts/setup test

wheel: setup ## build the Python wheel and install it into .venv
	@scripts/wheel

test: setup ## every check of the repository
	@scripts/test

clean: ## remove everything that was built
	rm -rf target build dist .venv demo-output
