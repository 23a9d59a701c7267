#!/usr/bin/env bats
# limit_s: 300
# takes_s: 4
# more: restarts on other hosts, power cuts, hosts that do not come, too few hosts
# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154 # $ is for the hosts' shells; bats sets output
# A number of ranks that follows the hosts: --min-np, --max-np, --host-discovery-script.
bats_require_minimum_version 1.5.0
load jobs

setup_file() {
	cluster_up 4
	[ -z "$(why_no_cluster)" ] || return 0
	mark_clean n0 n1 n2 n3 n4
	script again <<- 'S'
		[ -z "$STOPS_AT" ] || [ "$STOPS_AT" != "$WORLD_SIZE" ] || exit 0
		setsid sleep 1000 &
		echo "ready$TORCHELASTIC_RESTART_COUNT.$RANK of $WORLD_SIZE on $(uname -n)"
		sleep 1000
	S
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
}

teardown() {
	[ -n "$(why_no_cluster)" ] || [ -z "${pid-}" ] || on n0 pkill -KILL -x runner || true
	[ -z "${without-}" ] || "$VCLUSTER" sshd "$without" start
	[ -z "${cut-}" ] || "$VCLUSTER" boot "$cut"
}

hosts() { # LINE...: the script names these now
	printf '%s\n' "$@" > "$STATE/t/hosts.new"
	mv "$STATE/t/hosts.new" "$STATE/t/hosts"
}

grows() { # OPTION...: on the hosts of the script
	start --host-discovery-script "cat /vc/t/hosts" "$@" bash /vc/t/again
}

# All ranks of EPOCH run, on these HOSTS.
ready() { # EPOCH NP HOST...
	local rank
	for ((rank = 0; rank < $2; rank++)); do
		wait_for grep -q "ready$1.$rank of $2 " "$T/out" || { cat "$T/out" "$T/err"; return 1; }
	done
	[ "$(sed -n "s/.*ready$1\.[0-9]* of .* on //p" "$T/out" | sort -u | tr '\n' ' ')" = "${*:3} " ]
}

# bats test_tags=all
@test "a host that the script names gets ranks, one that it names no more is left" {
	hosts n1:2
	grows --min-np 2 --max-np 5
	ready 0 2 n1
	hosts n1:2 n2:2
	ready 1 4 n1 n2
	hosts n2:2
	ready 2 2 n2
	wait_for all_clean n1
	signal TERM
	ended_with 143 n1 n2
	err_says "the hosts are others now: ending 2 ranks" "start: 4 ranks on 2 hosts" "start: 2 ranks on 1 host"
	silent_on "restart "
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "a host is lost: fewer ranks go on; once it is back, all do" {
	start --min-np 2 -np 4 -H n1:2,n2:2 --host-timeout 3 --host-cooldown 1 bash /vc/t/again
	ready 0 4 n1 n2
	"$VCLUSTER" kill n2
	cut=n2
	ready 1 2 n1
	"$VCLUSTER" boot n2
	unset cut
	ready 2 4 n1 n2
	signal TERM
	ended_with 143 n1 n2
	err_says "n2: " "restart 1, at most 3 in 3600 s: 2 ranks on 1 host" "start: 4 ranks on 2 hosts"
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "a host does not come up: the others start without it, and then with it" {
	without=n2
	"$VCLUSTER" sshd n2 stop
	start --min-np 2 --max-np 4 -H n1:2,n2:2 --start-timeout 2 --host-cooldown 1 bash /vc/t/again
	ready 1 2 n1
	"$VCLUSTER" sshd n2 start
	unset without
	ready 2 4 n1 n2
	signal TERM
	ended_with 143 n1 n2
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "a host that fails --health-check: the others start without it; once it is well, all do" {
	on n2 touch /run/sick
	start --min-np 2 --max-np 4 -H n1:2,n2:2 --host-cooldown 1 \
		--health-check 'echo >> /run/tries; test ! -e /run/sick' bash /vc/t/again
	ready 1 2 n1
	wait_for grep -q "n2: --health-check failed: status 1" "$T/err"
	tried() { [ "$(on n2 sh -c 'wc -l < /run/tries')" -ge 3 ]; }
	wait_for tried # and the ranks stay
	on n2 rm /run/sick
	ready 2 4 n1 n2
	signal TERM
	ended_with 143 n1 n2
	on n1 rm /run/tries
	on n2 rm /run/tries
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "too few hosts are left: the job waits for others, and not for ever" {
	hosts n1:2 n2:2
	grows --min-np 4 --max-np 4 --elastic-timeout 4
	ready 0 4 n1 n2
	hosts n1:2
	wait_for grep -q "waits up to 4 s for hosts" "$T/err"
	hosts n1:2 n3:2
	ready 1 4 n1 n3
	hosts n1:2
	ended_with 240 n1 n3
	err_says "the hosts had no room for so many ranks within 4 s"
	all_clean n0 n1 n2 n3
}

# bats test_tags=all
@test "^C ends the wait for hosts" {
	hosts n1:2 n2:2
	grows --min-np 4 --max-np 4
	ready 0 4 n1 n2
	hosts n1:2
	wait_for grep -q "waits up to 600 s for hosts" "$T/err"
	signal INT
	ended_with 130 n1 n2
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "a host that cannot be reached ends no rank" {
	hosts n1:2
	grows --min-np 2 --max-np 4 --start-timeout 2
	ready 0 2 n1
	without=n2
	"$VCLUSTER" sshd n2 stop
	hosts n1:2 n2:2
	sleep 5 # nothing is to happen
	silent_on "start: "
	"$VCLUSTER" sshd n2 start
	unset without
	hosts n1:2 n3:1
	ready 1 3 n1 n3
	signal TERM
	ended_with 143 n1 n2 n3
	all_clean n0 n1 n2 n3
}

# bats test_tags=all
@test "the script fails while the job runs: the hosts stay, and it is said once" {
	hosts n1:2
	grows --min-np 2 --max-np 4
	ready 0 2 n1
	mv "$STATE/t/hosts" "$STATE/t/away"
	wait_for grep -q "it ended with status 1" "$T/err"
	hosts n1:2 n2:2
	ready 1 4 n1 n2
	signal TERM
	ended_with 143 n1 n2
	[ "$(grep -c "it ended with status 1" "$T/err")" = 1 ]
}

# bats test_tags=all
@test "the script names 5000 hosts, --min-np asks for more ranks than slots: each is said" {
	run -2 r --min-np 5 --max-np 5 -H n1:2,n2:2 true
	says "--min-np 5 asks for more ranks than -H gives slots: n[1-2]:2"
	hosts n1:2
	grows --min-np 2 --max-np 2
	ready 0 2 n1
	hosts n1:2 "h[1-5000]:2"
	wait_for grep -q "the script has named more than 4097 hosts" "$T/err"
	signal TERM
	ended_with 143 n1
}

# The last that is said is that now RANKS are in a world.
full() { # RANKS
	[[ "$(grep -E 'has joined|is back| go(es)? on' "$T/err" | tail -1)" == *": $1 ranks" ]]
}

trains() { # ARGUMENT...: what tests/helpers/elastic.c computes is as if nobody had been lost
	start --no-tag --min-np 2 -np 4 -H n1:2,n2:2 --host-timeout 2 "$@"
	wait_for grep -q "all have begun" "$T/out"
}

# bats test_tags=all
@test "a host is lost: ranks that change their world go on without its ranks" {
	trains "$HELPERS/elastic" 1500 2
	on n2 pkill -KILL -x berth-agent
	ended_with 0 n1 n2
	grep -x "2 ranks, 1500 steps" "$T/out"
	err_says "n2: lost its agent" "  with it ranks 2-3" "  the other 2 ranks go on"
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "a power cut of the host of rank 0, and a partition" {
	trains "$HELPERS/elastic" 2500 2
	"$VCLUSTER" kill n1
	cut=n1
	ended_with 0 n2
	grep -x "2 ranks, 2500 steps" "$T/out"
	"$VCLUSTER" boot n1
	unset cut
	trains "$HELPERS/elastic" 2500 2
	"$VCLUSTER" partition n2
	ended_with 0 n1
	"$VCLUSTER" partition heal
	grep -x "2 ranks, 2500 steps" "$T/out"
	wait_for all_clean n1 n2
}

# bats test_tags=all
@test "too few ranks are left to go on: all start again once there are hosts" {
	start --no-tag --min-np 3 -np 4 -H n1:2,n2:2 --host-timeout 2 --host-cooldown 1 "$HELPERS/elastic" 400 2
	wait_for grep -q "all have begun" "$T/out"
	on n2 pkill -KILL -x berth-agent
	ended_with 0 n1 n2
	grep -x "4 ranks, 400 steps" "$T/out"
	err_says "waits up to 600 s for hosts" "restart 1, at most 3"
}

@test "a host comes: its ranks join those that change their world" {
	hosts n1:2
	rm -f "$STATE/t/stop"
	start --no-tag --host-discovery-script "cat /vc/t/hosts" --min-np 2 --max-np 5 "$HELPERS/elastic" "/vc/t/stop" 2
	wait_for grep -q "all have begun" "$T/out"
	hosts n1:2 n2:4
	wait_for full 5
	touch "$STATE/t/stop"
	ended_with 0 n1 n2
	grep "^5 ranks, " "$T/out"
	run ! grep "start: " "$T/err"
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "a host is lost and comes back, and another one takes its place" {
	hosts n1:2 n2:2
	rm -f "$STATE/t/stop"
	start --no-tag --host-discovery-script "cat /vc/t/hosts" --min-np 2 --max-np 4 --host-cooldown 1 "$HELPERS/elastic" "/vc/t/stop" 2
	wait_for grep -q "all have begun" "$T/out"
	on n2 pkill -KILL -x berth-agent
	wait_for full 4
	hosts n1:2 n3:2
	on n2 pkill -KILL -x berth-agent
	twice() { [ "$(grep -c " go on" "$T/err")" = 2 ]; }
	wait_for twice
	wait_for full 4 || { cat "$T/err"; return 1; }
	touch "$STATE/t/stop"
	ended_with 0 n1 n2 n3
	grep "^4 ranks, " "$T/out"
	run ! grep "start: " "$T/err"
	all_clean n0 n1 n2 n3
}

@test "a host is to be left: its ranks end when all change their world, and no step is lost" {
	hosts n1:2 n2:2
	rm -f "$STATE/t/stop"
	start --no-tag --host-discovery-script "cat /vc/t/hosts" --min-np 2 --max-np 4 "$HELPERS/elastic" "/vc/t/stop" 2
	wait_for grep -q "all have begun" "$T/out"
	hosts n2:2
	wait_for all_clean n1
	kill -0 "$pid"
	hosts n2:2 n1:1
	wait_for full 3
	touch "$STATE/t/stop"
	ended_with 0 n1 n2
	grep "^3 ranks, " "$T/out"
	err_says "n1 is to be left: ending ranks 0-1" "  the other 2 ranks go on"
	run ! grep "start: " "$T/err"
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "SIGTERM at an agent: its host is left for good; no step is lost where ranks change their world" {
	rm -f "$STATE/t/stop"
	start --no-tag -H n1:2,n2:2 --min-np 2 --max-np 4 --host-cooldown 1 "$HELPERS/elastic" "/vc/t/stop" 2
	wait_for grep -q "all have begun" "$T/out"
	on n1 pkill -TERM -x berth-agent
	wait_for all_clean n1
	touch "$STATE/t/stop"
	ended_with 0 n1 n2
	grep "^2 ranks, " "$T/out"
	err_says "n1 is to be left: its agent got SIGTERM" "n1 is to be left: ending ranks 0-1" "  the other 2 ranks go on"
	start --min-np 2 -np 4 -H n1:2,n2:2 --host-cooldown 1 bash /vc/t/again
	ready 0 4 n1 n2
	on n2 pkill -TERM -x berth-agent
	ready 1 2 n1
	signal TERM
	ended_with 143 n1 n2
	err_says "n2 is to be left: its agent got SIGTERM" "start: 2 ranks on 1 host"
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "the script names other hosts 20 times: always some go on, and nothing is left" {
	local h i list
	hosts n1:2 n2:2
	rm -f "$STATE/t/stop"
	start --no-tag --host-discovery-script "cat /vc/t/hosts" --min-np 1 --max-np 8 "$HELPERS/elastic" "/vc/t/stop" 2
	wait_for grep -q "all have begun" "$T/out"
	RANDOM=${SEED:-$RANDOM}
	for ((i = 0; i < 20; i++)); do
		list=("n$((1 + RANDOM % 4)):2")
		for h in n1 n2 n3 n4; do
			[ $((RANDOM % 2)) = 0 ] || [ "${list[0]%:*}" = $h ] || list+=("$h:2")
		done
		hosts "${list[@]}"
		sleep "$((RANDOM % 2)).$((RANDOM % 10))" # moments are random, not awaited
	done
	hosts n1:2 n2:2 n3:2 n4:2
	wait_for full 8 || { tail -30 "$T/err"; return 1; }
	touch "$STATE/t/stop"
	ended_with 0 n1 n2 n3 n4
	grep "^8 ranks, " "$T/out"
	run ! grep "start: " "$T/err"
	all_clean n0 n1 n2 n3 n4
}

# bats test_tags=all
@test "a spare host takes the ranks of a lost one, in place and by a restart" {
	rm -f "$STATE/t/stop"
	start --no-tag -np 4 --min-np 2 --spares 1 -H n1:2,n2:2,n3:2 --events /vc/t/events "$HELPERS/elastic" "/vc/t/stop" 2
	wait_for grep -q "all have begun" "$T/out"
	wait_for grep -q '"host up", "host": "n3"' "$STATE/t/events"
	on n2 pkill -KILL -x berth-agent
	wait_for full 4
	touch "$STATE/t/stop"
	ended_with 0 n1 n2 n3
	grep "^4 ranks, " "$T/out"
	start -np 4 --spares 1 -H n1:2,n2:2,n3:2 bash /vc/t/again
	ready 0 4 n1 n2
	on n2 pkill -KILL -x berth-agent
	ready 1 4 n1 n3
	signal TERM
	ended_with 143 n1 n2 n3
	err_says "restart 1, at most 3 in 3600 s: 4 ranks on 2 hosts"
	all_clean n0 n1 n2 n3
}

# bats test_tags=all
@test "hvd.elastic.run of PyTorch: a host comes, is lost, and comes back" {
	need_torch
	script train.py <<- 'S'
		import sys
		import time

		import torch

		import horovod.torch as hvd

		hvd.init()
		torch.manual_seed(1)
		model = torch.nn.Linear(8, 4).double()
		optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01),
		                                     named_parameters=model.named_parameters())


		@hvd.elastic.run
		def train(state):
		    while not stops():
		        x, y = torch.randn(4, 8, dtype=torch.double), torch.randn(4, 4, dtype=torch.double)
		        optimizer.zero_grad()
		        torch.nn.functional.mse_loss(model(x), y).backward()
		        optimizer.step()
		        state.batch += 1
		        time.sleep(0.01)
		        if state.batch % 5 == 0:
		            state.commit()


		def stops():
		    """One answer for all ranks."""
		    there = __import__("os").path.exists(sys.argv[1])
		    return hvd.allreduce(torch.tensor([float(there)]), op=hvd.Sum).item() > 0


		def on_reset():
		    if hvd.rank() == 0:
		        print("reset: size", hvd.size(), "batch", state.batch, flush=True)


		state = hvd.elastic.TorchState(model, optimizer, batch=0)
		state.register_reset_callbacks([on_reset])
		print("begun", flush=True)
		train(state)
		print(f"end: of {hvd.size()}, batch {state.batch}, {model.weight.sum().item():.15f}", flush=True)
	S
	hosts n1:2
	rm -f "$STATE/t/stop"
	start --horovod --no-tag -x TORCHINDUCTOR_CACHE_DIR=/vc/t/inductor --min-np 2 --max-np 4 --host-cooldown 1 --host-discovery-script "cat /vc/t/hosts" \
		"$PYTHON" /vc/t/train.py /vc/t/stop
	wait_for grep -q begun "$T/out"
	hosts n1:2 n2:2
	wait_for full 4
	on n2 pkill -KILL -x berth-agent
	wait_for grep -q " go on" "$T/err"
	wait_for full 4
	touch "$STATE/t/stop"
	ended_with 0 n1 n2
	[ "$(grep -c '^end: of 4' "$T/out")" = 4 ]
	[ "$(grep '^end: of 4' "$T/out" | sort -u | wc -l)" = 1 ]
	run ! grep "start: " "$T/err"
	grep "^reset: size 2 batch [1-9]" "$T/out"
	all_clean n0 n1 n2
}
