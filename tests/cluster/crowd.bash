# crowd.bash: what tests/cluster/collectives.bats and tests/soak/strangers.sh share: thousands of
# strangers at the listeners of a job.
# shellcheck shell=bash disable=SC2016,SC2154 # $ is for the hosts' shells; the helpers set output

# "ADDRESS PORT" of steady's listeners on HOST.
listeners() { # HOST
	on "$1" ss -Htlnp | awk '/"steady"/ { sub(/:/, " ", $4); print $4 }'
}

listens() { [ -n "$(listeners "$1")" ]; }

come_to() { # HOST COUNT SEED
	local address port
	while read -r address port; do
		on n3 "$PYTHON" "$ROOT/tests/cluster/crowd.py" "$address" "$port" "$2" "$3" > "$T/crowd.$1" 3>&- &
		crowds+=($!)
	done < <(listeners "$1")
	[ ${#crowds[@]} -gt 0 ]
}

have_come() { grep -qs ' have come$' "$T/crowd.$1"; }

all_sum_here() { [ "$(grep -c '^begun$' "$T/out")" = 2 ]; }

# In KiB: steady's memory on HOST, and what its sockets keep for it.
memory() { # HOST
	on "$1" sh -c 'awk "/^VmRSS/ { print \$2 }" /proc/$(pgrep -x steady)/status
		ss -Htnm | grep -o "skmem:(r[0-9]*" | awk -F r "{ sum += \$2 } END { print int(sum / 1024) }"' | xargs
}

# COUNT strangers are at the door of rank 1, which waits for rank 0; then rank 0 comes, and the job
# goes on while as many come to its door.
crowded() { # COUNT SEED
	local before after crowds=() h
	rm -f "$STATE/t/come"
	script waits <<< '[ "$RANK" = 1 ] || while [ ! -e /vc/t/come ]; do sleep 0.05; done; exec "$@"'
	start --no-tag -H n1,n2 sh /vc/t/waits "$STEADY" 60
	wait_for listens n2
	before=$(memory n2)
	come_to n2 "$1" "$2"
	wait_for have_come n2
	after=$(memory n2)
	touch "$STATE/t/come"
	wait_for all_sum_here
	come_to n1 "$1" "$2"
	wait_for have_come n1
	echo "KiB of memory, KiB in sockets: $before, with $1 strangers $after, at work $(memory n1)"
	signal USR1
	ended_with 0 n1 n2
	for h in "${crowds[@]}"; do kill "$h"; wait "$h" || true; done 2> /dev/null
	on n3 pkill -KILL -f crowd.py || true
	grep -q '^[1-9][0-9]* sums$' "$T/out" || { cat "$T/out"; return 1; }
	[ $((${after% *} - ${before% *})) -lt 4096 ] && [ "${after#* }" -lt 16384 ]
}
