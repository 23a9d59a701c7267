#!/usr/bin/env bats
# limit_s: 240
# takes_s: 17
# One bit of the data that ranks of several hosts say to each other changes on the way: no rank takes
# it.  tests/soak/flip.sh has more places.  The places come from SEED.
load common

@test "a bit that changes between hosts is never taken, whatever the operation and its size" {
	SEED=${SEED:-$RANDOM}
	run "$HELPERS/flip" "${PLACES:-150}" "$SEED"
	echo "$output"
	[ "$status" = 0 ]
}
