# The front door: `make demo` and `make test`. Everything else is CMake (see CMakePresets.json).
.PHONY: demo test bench format setup

demo: setup
	cmake --preset release
	cmake --build --preset release --target grapnel_command
	build/release/command/grapnel demo

test: setup
	cmake --preset dev
	cmake --build --preset dev
	tools/run_tests dev

bench: setup
	cmake --preset release
	cmake --build --preset release --target bench
	set -e; for program in build/release/bench/*; do \
	  if [ -x "$$program" ]; then "$$program"; else echo "There is no program in bench/ yet."; fi; done

format: setup
	tools/format

setup:
	@tools/setup
