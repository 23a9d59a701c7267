#!/bin/bash
# demo.sh: what `make demo` runs.  Installs what is missing, builds, trains on this machine.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
tests/deps build demo
make -s all venv
set -- "$build/bin/runner" -np 2 build/venv/bin/python3 examples/train_digits.py
echo "\$ $*"
exec "$@"
