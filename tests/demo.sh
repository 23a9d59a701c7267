#!/bin/bash
# demo.sh [torch]: what `make demo` and `make demo-torch` run.  Installs what is missing,
# builds, trains on this machine: in C with libberth, or in PyTorch.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
jobs=-j$(nproc)
[[ ${MAKEFLAGS:-} != *-j* ]] || jobs= # make has its own
if [ "${1:-}" = torch ]; then
	tests/deps build demo
	make -s ${jobs:+"$jobs"} all venv
	set -- build/venv/bin/python3 examples/train_digits.py
else
	tests/deps build
	make -s ${jobs:+"$jobs"} all
	set -- "$build/examples/train_digits"
fi
set -- "$build/bin/runner" -np 2 "$@"
echo "\$ $*"
exec "$@"
