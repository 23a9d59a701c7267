#!/bin/bash
export OMP_NUM_THREADS=4
exec numactl --membind=0 "$@"
