# lost.bash: what tests/cluster/collectives.bats and tests/soak/collectives.sh share: a rank that is
# killed while tests/helpers/steady.c runs.
# shellcheck shell=bash disable=SC2154 # the helpers set output

# On HOSTS hosts, rank RANK MS after it began; all others name it within 1000 ms, and nobody else.
# told_ms becomes the longest.  It is told late only where it is so three times: a busy machine may
# have stood still.
lost_at() { # HOSTS RANK MS
	local died said last
	lost_once "$@" && { [ $told_ms -lt 1000 ] || lost_once "$@"; } && { [ $told_ms -lt 1000 ] || lost_once "$@"; } &&
		[ $told_ms -lt 1000 ] && return
	echo "$1 hosts, rank $2 after $3 ms: $said of $(($1 - 1)) named it, the last after $told_ms ms:"
	echo "$output"
	return 1
}

lost_once() {
	run r --no-tag --keep-going -H "n[1-$1]" "$HELPERS/steady" 20 "$2" "$3"
	died=$(sed -n 's/^dies at //p' <<< "$output")
	said=$(grep -c "^6 of $2 at .*rank $2 on 'n$(($2 + 1))' has ended" <<< "$output")
	last=$(sed -n 's/^6 of.* at \([0-9]*\):.*/\1/p' <<< "$output" | sort -n | tail -1)
	told_ms=$((${last:-0} - ${died:-0}))
	[ -n "$died" ] && [ "$said" = $(($1 - 1)) ]
}
