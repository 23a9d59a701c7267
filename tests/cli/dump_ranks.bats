#!/usr/bin/env bats
# limit_s: 240
# takes_s: 1
# more: a slow job; a training that imports PyTorch
# shellcheck disable=SC2154 # bats sets output
# runner --dump of jobs whose ranks use libberth: which rank keeps the others waiting, and where.
load common
load dump

setup() {
	cd "$T" || return
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
	network_open
	export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
	job=
}

teardown() {
	[ -z "$job" ] || kill -TERM "$job" || true
	network_close
	wait
}

begins() { # NP ARGUMENT...
	"${inside[@]}" "$RUNNER" --oversubscribe --stdin none --kill-grace 1 --horovod -x OMP_NUM_THREADS -x PYTHONDONTWRITEBYTECODE \
		-np "$@" > out 2>&1 3>&- &
	job=$!
}

# A dump has all of TEXT.
dumps() { # TEXT...
	run "${inside[@]}" "$RUNNER" --dump
	says "$@" > lacks
}

@test "one calls another collective, one sleeps, one reads from a FIFO that nobody writes: stuck" {
	mkfifo data
	cat > train.py <<- 'EOF'
		import time
		import berth
		def evaluate():
		    berth.broadcast_object("a", 0)
		def next_batch():
		    time.sleep(600)
		def read_data():
		    open("data").read()
		def train():
		    berth.allgather_object(1)
		berth.init()
		for step in range(3):
		    berth.allgather_object(step)
		{1: evaluate, 2: next_batch, 3: read_data}.get(berth.rank(), train)()
	EOF
	begins 8 /usr/bin/python3 train.py
	wait_for dumps "  5 ranks  [0,4-7]  in allgather of " "train.py:10 train" "  1 rank  [2]  last " "train.py:6 next" \
		"  1 rank  [3]  last " "train.py:8 read_data" "  1 rank  [1]  in broadcast of "
	grep -A5 "dump of job" <<< "$output" > lines
	[[ $(sed -n 2p lines) == *"1 rank  [1]  in broadcast"*"train.py:4 evaluate  state "* ]]
	[[ $(sed -n 3p lines) == *"1 rank  [2]  last allgather"*"train.py:6 next_batch  state S in "* ]]
	[[ $(sed -n 4p lines) == *"1 rank  [3]  last allgather"*"train.py:8 read_data  state S in "* ]]
	[[ $(sed -n 5p lines) == "  5 ranks  "* ]]
	says "rank 1 is in broadcast of " ", where others are in allgather of " "; look at $T/train.py:4" \
		"rank 2: 6 ranks wait for it, in no operation; look at $T/train.py:6" \
		"rank 3: 6 ranks wait for it, in no operation; look at $T/train.py:8"
	dumps "no rank has begun or ended an operation: stuck, or in work of its own"
	kill -0 "$job"
}

# bats test_tags=all
@test "a rank whose batches take long: slow, not stuck" {
	cat > slow.py <<- 'EOF'
		import time
		import berth
		berth.init()
		while True:
		    if berth.rank() == 1:
		        time.sleep(0.3)
		    berth.allgather_object(0)
	EOF
	begins 3 /usr/bin/python3 slow.py
	# asleep when it is asked, and in a later step than at the dump before
	wait_for dumps "  1 rank  [1]  last allgather of " "slow.py:6 <module>" "  2 ranks  [0,2]  in allgather of " \
		"3 of 3 ranks have begun or ended operations: slow, not stuck [0-2]"
}

# bats test_tags=all
@test "a training of Horovod's, with PyTorch: the rank in its loader" {
	[ -e "$ROOT/build/venv/installed" ] || skip "no build/venv (make venv)"
	cat > hvd.py <<- 'EOF'
		import time
		import torch
		import horovod.torch as hvd
		def next_batch(step):
		    if step == 2 and hvd.rank() == 2:
		        time.sleep(600)
		    return torch.ones(4, 8)
		hvd.init()
		model = torch.nn.Linear(8, 2)
		optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1),
		                                     named_parameters=model.named_parameters())
		hvd.broadcast_parameters(model.state_dict(), root_rank=0)
		for step in range(4):
		    batch = next_batch(step)
		    optimizer.zero_grad()
		    model(batch).sum().backward()
		    optimizer.step()
	EOF
	begins 4 "$ROOT/build/venv/bin/python3" hvd.py
	wait_for dumps '  1 rank  [2]  last allreduce "allreduce.' "hvd.py:6 next_batch" \
		'  3 ranks  [0-1,3]  in allreduce "allreduce.' "hvd.py:17 <module>" \
		"rank 2: 3 ranks wait for it, in no operation; look at $T/hvd.py:6"
	dumps "stuck, or in work of its own"
}

# Line N of out is the first that has TEXT.
line_of() { grep -n -m 1 -F -- "$1" out | cut -d : -f 1; }

@test "a rank that hangs is shown before it is ended; one that does not answer is ended all the same" {
	cat > hangs.py <<- 'EOF'
		import os, signal, threading
		import berth
		def stuck():
		    threading.Event().wait()
		berth.init()
		if os.environ["WAY"] == "catches":
		    signal.signal(59, lambda *_: None)
		if berth.rank() == 1:
		    os.kill(os.getpid(), signal.SIGSTOP) if os.environ["WAY"] == "stops" else stuck()
		berth.allgather_object(0)
	EOF
	for way in stops waits catches; do
		begins 3 --hang-timeout 0.5 --on-hang kill -x WAY=$way /usr/bin/python3 hangs.py
		wait "$job" || true
		job=
		[ "$(grep -c "dump of job" out)" = 1 ]
		(($(line_of "rank 1 on '") == $(line_of " hangs: ") && $(line_of " hangs: ") < $(line_of "dump of job") &&
			$(line_of "dump of job") < $(line_of ", hangs in state ") && $(line_of ", hangs in state ") < $(line_of ") hung: ")))
		grep -q "  2 ranks  \[0,2\]  in allgather of .* hangs.py:10 <module>" out || [ $way = catches ]
		case $way in
		stops) grep -q "  rank 1 is stopped (state T): 2 ranks wait for it" out ;;
		waits) grep -q "  rank 1: 2 ranks wait for it, in no operation; look at $T/hangs.py:4" out ;;
		catches) grep -q "    no stack: it does not answer" out ;;
		esac
	done
}

# bats test_tags=all
@test "one that goes on when it is asked is not ended, and its dumps are no work" {
	# EINTR wakes it
	cat > wakes.c <<- 'EOF'
		#include <poll.h>
		#include <signal.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <unistd.h>
		static void on_signal(int signo) { (void)signo; }
		int main(void) {
			struct sigaction a = { .sa_handler = on_signal };
			const char *rank = getenv("BERTH_RANK"), *stack = getenv("BERTH_RANK_STACK");
			if (*rank == '0') { /* it catches the signal, and has the file open */
				if (!stack || !fopen(strchr(stack, ':') + 1, "a")) return 1;
				sigaction(atoi(stack), &a, NULL);
				poll(NULL, 0, -1);
				for (volatile long i = 0; i < 100000000; i++);
				puts("woken");
				fflush(stdout);
			}
			return 0;
		}
	EOF
	gcc -O1 -o wakes wakes.c
	run -0 timeout 30 "$RUNNER" --oversubscribe --hang-timeout 0.6 --on-hang kill -np 2 ./wakes
	says "woken"
	silent_on "hangs:"
	silent_on "dump of job"
	# a report is one, though the threads of the rank write long stacks
	cat > threads.py <<- 'EOF'
		import threading
		def deep(n):
		    deep(n - 1) if n else threading.Event().wait()
		for i in range(20):
		    threading.Thread(target=deep, args=(30,), daemon=True).start()
		deep(30)
	EOF
	run -124 timeout 4 "$RUNNER" --oversubscribe --kill-grace 0.2 --hang-timeout 0.5 --on-hang report -np 2 /usr/bin/python3 threads.py
	[ "$(grep -c "dump of job" <<< "$output") $(grep -c "hang:" <<< "$output")" = "1 1" ]
}
