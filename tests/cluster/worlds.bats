#!/usr/bin/env bats
# limit_s: 300
# takes_s: 4
# more: other ends, and kills in a change
# shellcheck disable=SC2154 # bats sets output
# Jobs whose ranks go on without those that were lost: tests/helpers/changes.c says what is checked.
load jobs

setup_file() {
	cluster_up 3
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	export SEED=${SEED:-$((RANDOM + 1))}
	echo "SEED=$SEED"
}

# The sizes of the worlds that followed, ascending.
worlds() { # SIZES
	[ "$(plain | sed -n 's/^\([0-9]*\) ranks after .*/\1/p' | xargs)" = "$1" ] || { echo "$output"; false; }
}

@test "one rank after the other is killed, until two are left" {
	run r --keep-going -H n0:3,n1:3 "$BUILD/helpers/changes" "$SEED"
	worlds "2 3 4 5"
	run r --keep-going -H n0:1,n1:4,n2:2 "$BUILD/helpers/changes" "$SEED"
	worlds "2 3 4 5 6"
}

# bats test_tags=all
@test "ranks end in order, or all change though nobody is lost" {
	run r --keep-going -H n0:2,n1:2,n2:1 "$BUILD/helpers/changes" "$SEED" exits
	worlds "2 3 4"
	run -0 r -H n0:2,n1:2 "$BUILD/helpers/changes" "$SEED" plain
	worlds "4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4"
}

# bats test_tags=all
@test "another rank is killed while the others change" {
	for i in 1 2 3 4; do
		run r --keep-going -H n0:3,n1:3 "$BUILD/helpers/changes" $((SEED + i)) during
		worlds "2 4"
	done
}
