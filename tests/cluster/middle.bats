#!/usr/bin/env bats
# limit_s: 400
# takes_s: 60
# shellcheck disable=SC2016,SC2030,SC2031,SC2086,SC2154 # $ is for the hosts' shells; names are our own
# A host between two others, by ARP, changes, repeats, moves and leaves out what their ranks say to
# each other (tests/helpers/middle.c).  No rank takes it: both name the connection.  The ranks are
# tests/helpers/guarded.c; the place comes from SEED.
load jobs

setup_file() {
	cluster_up 3
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	A=10.77.0.1 B=10.77.0.2 PORT=7777
	SEED=${SEED:-$((RANDOM + 1))}
	echo "SEED=$SEED"
	RANDOM=$SEED
}

teardown() {
	[ -n "$(why_no_cluster)" ] || leave
}

leave() {
	on n3 pkill -TERM -x middle || true
	[ -z "${middle-}" ] || wait "$middle" || true
	middle=
	on n3 iptables -t nat -F PREROUTING
	on n1 ip neigh del $B dev eth0 2> /dev/null || true
	on n2 ip neigh del $A dev eth0 2> /dev/null || true
}

is_between() { # what n1 and n2 hold for the other one's address is n3's
	[[ $(on n1 cat /proc/net/arp) == *"$B "*"$mac"* && $(on n2 cat /proc/net/arp) == *"$A "*"$mac"* ]]
}

# n3 comes between n1 and n2; what they say to their sshds it lets through.  What they believe now they
# keep: on a busy machine n3's claims came too late, and a host that asked again heard the truth, in the
# middle of a connection.
come() { # DOES WHICH AT BYTES
	local n
	on n3 sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward
		for f in /proc/sys/net/ipv4/conf/*/send_redirects; do echo 0 > $f; done'
	for n in n1 n2; do on n3 bash -c ": < /dev/tcp/$n/22"; done
	mac=$(on n3 cat /sys/class/net/eth0/address)
	on n3 iptables -t nat -A PREROUTING -p tcp -s $A -d $B ! --dport 22 -j REDIRECT --to-ports $PORT
	on n3 iptables -t nat -A PREROUTING -p tcp -s $B -d $A ! --dport 22 -j REDIRECT --to-ports $PORT
	on n3 "$HELPERS/middle" eth0 $A $B $PORT "$@" > "$T/middle" 2>&1 3>&- &
	middle=$!
	wait_for is_between
	on n1 ip neigh replace $B lladdr $mac dev eth0 nud permanent
	on n2 ip neigh replace $A lladdr $mac dev eth0 nud permanent
}

pair() { # OPTION... PROGRAM ARGUMENT...: a rank on each of n1 and n2
	run r --no-tag --keep-going -H "n[1-2]" "$@"
}

# What n3 does is seen, and both ranks name the connection.
seen() { # MODE KIND BYTES ROUNDS DOES WHICH AT BYTES
	come "${@:5}"
	pair -x BERTH_NET_SECURE="$1" "$HELPERS/guarded" "${@:2:3}"
	leave
	echo "$* (status $status): $(cat "$T/middle")"
	echo "$output"
	grep -q "^$5: " "$T/middle" || [ "$5" = end ]
	[ "$status" != 0 ]
	[[ $output != *WRONG* ]]
	[ "$(grep -cE "^(sum|messages): rank [01]: (10|6): .*the connection between rank (0 and rank 1|1 and rank 0) \(10\.77\.0\.[123]\)" <<< "$output")" = 2 ]
}

# Somewhere in what a rank says.
anywhere() {
	echo $((RANDOM % 8000))
}
# In messages of 8 bytes, where as many as are cut follow before the rank waits for an answer: it
# says eight of 80 bytes, and eight answers of 64.
in_burst() {
	echo $((1152 * (RANDOM % 7) + RANDOM % 420))
}
# The first sum measures the connection, with large data of no meaning; behind those.
in_sums() {
	echo $((800000 + RANDOM % 50000))
}

@test "a host between them that does nothing: all sums are right" {
	local mode
	for mode in mac aead; do
		come none first 0 0
		pair -x BERTH_NET_SECURE=$mode "$HELPERS/guarded" sums 1024 200
		echo "$output"
		[ "$status" = 0 ]
		pair -x BERTH_NET_SECURE=$mode "$HELPERS/guarded" messages 1024 50
		leave
		[ "$status" = 0 ]
		[[ $(grep -c '^carried: ' "$T/middle") -ge 2 ]] || { cat "$T/middle"; false; }
	done
}

@test "mac: heads and sums that are changed, repeated or cut" {
	local which
	for which in first second; do
		seen mac sums 8 1000 change $which "$(in_sums)" 0
		seen mac sums 1024 1000 change $which "$(in_sums)" 0
		seen mac sums 8 1000 replay $which "$(in_sums)" 80
		seen mac sums 256 1000 cut $which "$(in_sums)" $((1 + RANDOM % 100))
		seen mac sums 64 1000 end $which "$(in_sums)" 0
		seen mac sums 1048576 10 change $which $((1000000 + RANDOM)) 0
		seen mac sums 65536 100 cut $which "$(in_sums)" $((1 + RANDOM % 100))
	done
}

@test "mac: messages that change places, or are changed, repeated or cut" {
	seen mac messages 65536 20 change first $((500 + RANDOM)) 0
	seen mac messages 1048576 10 change first $((500 + RANDOM * 8)) 0
	seen mac messages 64 200 reorder first $((136 * (RANDOM % 6))) 136 # of the first eight
	seen mac messages 1024 200 change first "$(anywhere)" 0
	seen mac messages 8 200 replay first $((800 + RANDOM % 3000)) 80
	seen mac messages 8 200 cut first "$(in_burst)" $((1 + RANDOM % 100))
	seen mac messages 8 200 end first "$(anywhere)" 0
	seen mac messages 8 200 end first 64 0 # before anything was heard
}

@test "aead: any byte of any size" {
	local does which
	for does in change replay cut; do
		for which in first second; do
			seen aead sums 8 1000 $does $which $((500 + $(anywhere))) $((1 + RANDOM % 200))
			seen aead sums 1048576 10 $does $which $((1000000 + RANDOM)) $((1 + RANDOM % 200))
		done
		seen aead messages 65536 20 $does first $((500 + RANDOM)) $((1 + RANDOM % 200))
	done
	seen aead messages 64 200 reorder first $((RANDOM % 800)) 104
	seen aead sums 1048576 10 reorder second $((1000000 + RANDOM)) 16384
}

@test "BERTH_NET_SECURE that differs: both ranks say so" {
	pair sh -c 'BERTH_NET_SECURE=$([ $RANK = 0 ] && echo mac || echo aead) exec "$@"' sh "$HELPERS/guarded" sums 8 1
	echo "$output"
	[ "$status" != 0 ]
	[ "$(grep -c '10: .*the connection between rank . and rank . (10\.77\.0\..): rank . has another BERTH_NET_SECURE' <<< "$output")" = 2 ]
}
