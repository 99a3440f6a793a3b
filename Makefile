# The front door: `make demo`, `make test`, `make python` and `make docs`. Everything else is CMake (see CMakePresets.json).
.PHONY: demo test python bench docs format setup

demo: setup
	cmake --preset release
	cmake --build --preset release --target grapnel_command
	build/release/command/grapnel demo

test: setup
	tools/python_env
	cmake --preset dev
	cmake --build --preset dev
	tools/run_tests dev

python: setup
	tools/make_wheel $(PYTHON)

bench: setup
	cmake --preset release
	cmake --build --preset release --target bench
	set -e; for program in build/release/bench/*; do \
	  if [ -x "$$program" ]; then "$$program"; else echo "There is no program in bench/ yet."; fi; done

docs: setup
	mkdir -p build/docs && doxygen docs/Doxyfile
	@echo "The API reference is in build/docs/html/index.html."

format: setup
	tools/format

setup:
	@tools/setup
