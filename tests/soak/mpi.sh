#!/bin/bash
# mpi.sh: tests/cluster/mpi.bats and mpi_masks.bats with each MPI that is here; the first of 1 to 16 ranks.
set -eu
cd "$(dirname "$0")/../.."
MPI_SIZES=$(seq -s ' ' 16) bats --print-output-on-failure tests/cluster/mpi.bats tests/cluster/mpi_masks.bats
