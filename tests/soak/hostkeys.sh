#!/bin/bash
# hostkeys.sh: all cases of tests/cluster/hostkeys.bats, of which `make check` runs a third.
set -u
cd "$(dirname "$0")/../.." || exit
ALL=1 exec bats --tap tests/cluster/hostkeys.bats
