#!/usr/bin/env bats
# limit_s: 300
# takes_s: 5
# more: other causes, and PyTorch
# shellcheck disable=SC2030,SC2031,SC2153,SC2154 # bats sets output
# The right cause: ranks that talk to each other over 4 hosts fail because one of them did, and
# what its agent says comes last.  One of each that SEED chooses; tests/soak/cause.sh does 100.
load jobs

setup_file() {
	export SEED=${SEED:-$RANDOM}
	echo "# SEED=$SEED" >&3
	cluster_up 4
	[ -z "$(why_no_cluster)" ] || return 0
	source "$ROOT/tests/cluster/cause.bash"
	cause_ready
	script checkpoint.py <<- 'S'
		import os, signal, sys, torch, torch.distributed as dist
		from torch.nn.parallel import DistributedDataParallel
		from torch.utils.data import DataLoader, TensorDataset

		torch.set_num_threads(1)
		rank = os.environ["RANK"]
		enough = torch.zeros(1)
		signal.signal(signal.SIGTERM, lambda *_: enough.fill_(1))

		dist.init_process_group("gloo")
		model = DistributedDataParallel(torch.nn.Linear(8, 1))
		step = torch.optim.SGD(model.parameters(), lr=0.01)
		batches = DataLoader(TensorDataset(torch.ones(1 << 20, 8)), batch_size=4, num_workers=2)
		for turn, (batch,) in enumerate(batches):
		    step.zero_grad()
		    model(batch).sum().backward()
		    step.step()
		    all_enough = enough.clone()
		    dist.all_reduce(all_enough, dist.ReduceOp.MAX)
		    if all_enough.item(): break
		    if turn == 5: print(f"ready{rank} {os.getpid()}", flush=True)
		torch.save({"turn": turn, "model": model.state_dict()}, f"/vc/t/checkpoint.{rank}")
		dist.barrier()
		dist.destroy_process_group()
	S
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	source "$ROOT/tests/cluster/inject.bash"
	source "$ROOT/tests/cluster/rounds.bash"
	source "$ROOT/tests/cluster/cause.bash"
	RANDOM=$((SEED + BATS_TEST_NUMBER))
}

teardown() {
	[ -n "$(why_no_cluster)" ] || [ -z "${pid-}" ] || on n0 pkill -KILL -x runner || true
}

sampled() { # PROGRAM HOW
	local each=${each:-$((RANDOM % 2 + 1))} tries=1
	echo "SEED=$SEED: $1 $2, $each ranks on each host"
	# which of those that exit was first is a matter of milliseconds, in which an agent may get no turn
	case $2 in exit | exception) tries=3 ;; esac
	until cause_round "$1" "$2" "$each"; do
		[ -z "$pid" ] && [ $((tries -= 1)) -gt 0 ] || return 1
	done
}

@test "a ring: a rank killed" { sampled ring.py kill; }
# bats test_tags=all
@test "a ring: a rank with a segmentation fault" { sampled ring.py segv; }
# bats test_tags=all
@test "a ring: a rank out of memory" { sampled ring.py oom; }
@test "a ring: a rank that exits with 3" { sampled ring.py exit; }
# bats test_tags=all
@test "a ring: a rank with an exception" { sampled ring.py exception; }

# bats test_tags=all
@test "PyTorch DDP: a rank fails in one of these ways" {
	need_torch
	# shellcheck disable=SC2086 # words
	each=1 sampled ddp.py "$(pick $HOWS)"
}

# bats test_tags=all
@test "TERM to runner: PyTorch ranks with DataLoader workers write their checkpoint and end with 0" {
	need_torch
	local np=2 rank
	start --kill-grace 40 -H n1,n2 "$PYTHON" /vc/t/checkpoint.py
	all_ready
	signal TERM
	ended_with 0 n1 n2
	for rank in 0 1; do
		"$PYTHON" -c 'import sys, torch; assert torch.load(sys.argv[1])["turn"] > 0' "$STATE/t/checkpoint.$rank"
	done
	run ! grep '^runner: [^r]' "$T/err" # but for the line about the signal
}
