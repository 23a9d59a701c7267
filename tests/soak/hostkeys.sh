#!/bin/bash
# hostkeys.sh: all cases of host keys, of which `make check` runs some.
set -u
cd "$(dirname "$0")/../.." || exit
exec bats --tap tests/cluster/hostkeys_all.bats
