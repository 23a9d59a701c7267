#!/bin/bash
# flux.sh: ranks on two nodes of Flux.
#
#	flux batch flux.sh
#
# A slot is the place of one rank: here 8 cores and a GPU, 8 slots on each node.  In a batch job of
# Flux, runner needs no -H.  It reaches the nodes by ssh, so ssh between them must not ask for a
# password.
#
# flux: --job-name=train
# flux: --nodes=2
# flux: --nslots=16
# flux: --cores-per-slot=8
# flux: --gpus-per-slot=1
# flux: --time-limit=4h

exec runner python3 train.py --checkpoint checkpoint.json "$@"
