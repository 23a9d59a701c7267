#!/bin/bash
export OMP_NUM_THREADS=4
shift
exec numactl --membind=0 "$@"
