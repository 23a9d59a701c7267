#!/bin/bash
# fence.sh [RANKS...]: PMIx_Fence of RANKS ranks on each of 16 cluster hosts (1 and 2), with data, beside
# the barest echo through the launcher: a barrier of PMI-1 with as many bytes.  Both go from rank to
# agent to runner, which sends all bytes to all agents; PMIx's go through libpmix on both ends, too.
# The two take turns within the same ranks (fence.c).  Beside them PMIx_Fence under Open MPI 4's
# mpirun.  Goals: PMIx_Fence is 2 times the echo with 1 KiB of each rank at most, and linear in bytes
# from there.  All hosts share this machine's cores: what libpmix does on 16 machines at one time is
# done here one after the other.
# More than 1 MiB from all hosts together is not exchanged but asked for, so that is the largest size.
set -eu
. "$(dirname "$0")/common.bash"
[ $# -gt 0 ] || set -- 1 2
hosts=16
pkg-config --exists pmix || { echo "skipped: no libpmix-dev (tests/deps launchers installs it)"; exit 0; }
# shellcheck disable=SC2046 # words
tool fence $(pkg-config --cflags --libs pmix | sed 's/-I/-isystem /g')

at=$(mktemp -d)
cluster "$hosts"
trap '"$VCLUSTER" down > /dev/null 2>&1; rm -rf "$at"' EXIT

# BYTES:STEPS of a job: one that puts more in all than 1 MiB for each rank gets no more room of PMI-1.
sizes=(0:110 1024:110 4096:77 16384:33)
round() { # RANKS
	local size names
	names=$(seq -s, -f "n%.0f:$1" $hosts)
	for size in "${sizes[@]}"; do
		on_n0 timeout 60 "$RUNNER" -q --no-tag -H "$names" -np $((hosts * $1)) \
			"$BUILD/bench/fence" "${size%:*}" "${size#*:}" >> "$at/$1/${size%:*}"
		[ -z "$(command -v mpirun.openmpi)" ] ||
			on_n0 timeout 60 mpirun.openmpi --allow-run-as-root -H "$names" -np $((hosts * $1)) \
				"$BUILD/bench/fence" "${size%:*}" "${size#*:}" >> "$at/$1/${size%:*}.mpirun"
	done
}

missed=
for ranks; do
	sizes[4]=$((60 * 1024 / ranks)):11
	mkdir "$at/$ranks"
	for ((i = 0; i < ${ROUNDS:-3}; i++)); do
		round "$ranks"
	done
	echo "== PMIx_Fence over the echo, $hosts hosts, $ranks on each"
	"$BENCH/fence.py" "$at/$ranks" || missed+=" $ranks"
done
[ -z "$missed" ] || { echo "over the goal:$missed"; exit 1; }
