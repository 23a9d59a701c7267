#!/usr/bin/env bats
# takes_s: 3
# more: PyTorch, and ranks that are killed
# shellcheck disable=SC2154 # bats sets output
# runner --timeline and --trace-merge.  tests/cli/timeline.py reads what it makes.
load common

setup() {
	cd "$T" || return
}

reads() { # FILE -> what is in it
	run -0 /usr/bin/python3 "$ROOT/tests/cli/timeline.py" "$1"
}

# What both forms say.
merges() { # FILE...
	for form in json json.gz pf pf.gz; do
		rm -f "out.$form"
		run -0 --separate-stderr "$RUNNER" --trace-merge "out.$form" "$@"
		merged=$output
		reads "out.$form"
		[[ $form == json ]] || [ "$output" = "$first" ] || return
		first=$output
	done
}

@test "timelines of ranks: slices, arrows, the critical rank of each step" {
	mkdir ranks
	"$BUILD/helpers/traces" ranks 3 500
	merges ranks/*
	[ "$merged" = "out.pf.gz: 1500 slices, 500 collectives joined; clocks are wrong by at most 0 us" ]
	says "processes 4 slices 1510 counters 0 arrows 500" "rank 2 (n0): ALLREDUCE x 500" \
		"step 1: rank 1 (n0), 50 collectives" "step 2: rank 2 (n0), 50 collectives" \
		"step 3: rank 0 (n0), 50 collectives" "file rank 1 (n0): of the job, 500 slices"
	# in any order, and with an end that is missing
	head -c -100 ranks/2 > early
	merges ranks/1 early ranks/0
	[[ $merged == "out.pf.gz: 1499 slices, 499 collectives joined, 1 without all their ranks, 1 file without"* ]]
	says "file rank 2 (n0): of the job, 499 slices, ends early"
}

@test "collectives that are too far apart are counted" {
	mkdir ranks
	"$BUILD/helpers/traces" ranks 2 20100
	sed -i 's/"set":0/"set":1/' ranks/1 # none is the same
	run -0 "$RUNNER" --trace-merge out.pf ranks/*
	[[ $output == "out.pf: 40200 slices, 0 collectives joined, 40200 without all their ranks;"* ]]
}

# 20 steps of three operations; before each step rank 1 sleeps.
trains() {
	cat > train.c <<- 'C'
		#include <berth.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <unistd.h>
		static void sum(float *x, size_t n)
		{
			struct berth_desc d = BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32,
							 .op = BERTH_SUM, .in = x, .out = x, .count = n);
			if (berth_run(&d, -1, NULL))
				exit(1);
		}
		int main(int argc, char **argv)
		{
			float x[99] = { 0 };
			int steps = argc > 1 ? atoi(argv[1]) : 20;
			if (berth_init(NULL))
				return 1;
			for (int i = 0; i < steps; i++) {
				if (berth_rank() == 1)
					usleep(20000);
				for (int k = 0; k < 3; k++)
					sum(x, 64 + k);
				if (argc > 2 && i == steps / 2 && berth_rank() == 1) {
					sleep(1);
					raise(9);
				}
				if (argc > 2 && i == steps / 2)
					sleep(9);
			}
			berth_shutdown();
			return 0;
		}
	C
	sed -i 's/^#include <stdio/#include <signal.h>\n&/' train.c
	gcc -o train train.c -I "$ROOT/lib" -L "$BUILD/lib" -lberth -Wl,-rpath,"$BUILD/lib"
}

@test "--timeline: two ranks of one host" {
	trains
	for form in json.gz pf.gz; do
		run -0 --separate-stderr "$RUNNER" -np 2 -H localhost:2 --timeline "t.$form" ./train
		# shellcheck disable=SC2154 # bats sets stderr
		[ "$stderr" = "runner: timeline t.$form: 120 slices, 60 collectives joined; clocks are wrong by at most 0 us" ]
		reads "t.$form"
		says "rank 0 (localhost): ALLREDUCE x 60" "rank 1 (localhost): ALLREDUCE x 60" "arrows 60" \
			"file rank 1 (localhost): of the job, 60 slices" "clock error at most 0 us"
		[ "$(grep -c "^step [0-9]*: rank 1 (localhost), 3 coll" <<< "$output")" -ge 12 ]
	done
	zcat t.json.gz | grep -c '"rank started"' | grep -qx 2
	zcat t.json.gz | grep -q '"end"'
}

# bats test_tags=all
@test "--timeline and --monitor: what ranks use are counters" {
	trains
	for form in json pf; do
		run -0 "$RUNNER" -np 2 -H localhost:2 --timeline "t.$form" --monitor 1s ./train 120
		reads "t.$form"
		grep -Eq "^processes 4 slices [0-9]+ counters [1-9][0-9]* arrows 360$" <<< "$output"
	done
}

@test "--timeline-steps: some of the steps" {
	trains
	run -0 --separate-stderr "$RUNNER" -np 2 -H localhost:2 --timeline t.json --timeline-steps 5:7 ./train
	[ "$stderr" = "runner: timeline t.json: 18 slices, 9 collectives joined; clocks are wrong by at most 0 us" ]
	reads t.json
	says "step 5: rank " "step 6: rank " "step 7: rank "
	for bad in 5 0:3 7:5 a:b; do
		run -2 "$RUNNER" -np 2 -H localhost:2 --timeline t.json --timeline-steps $bad ./train
		says "'$bad' is not a range of steps"
	done
	run ! "$RUNNER" -np 2 -H localhost:2 --timeline nowhere/t.json ./train
	says "cannot write the timeline 'nowhere/t.json': No such file"
}

# bats test_tags=all
@test "--timeline: a rank is killed, and starts again" {
	trains
	run ! --separate-stderr "$RUNNER" -np 2 -H localhost:2 --timeline t.json ./train 20 kill
	[[ $stderr == *"runner: timeline t.json: "*"2 files without an end"* ]]
	reads t.json
	grep -qE "^file rank 1 \(localhost\): of the job, (2[4-9]|3[0-3]) slices, ends early" <<< "$output"
	run ! --separate-stderr "$RUNNER" -np 2 -H localhost:2 --restarts 1 --timeline t.json ./train 20 kill
	reads t.json
	says "process rank 0 (localhost)" "process rank 1 (localhost), epoch 2" \
		"file rank 1 (localhost), epoch 2: of the job, "
}

@test "Horovod's timeline: a track for each tensor" {
	cp "$ROOT/tests/fuzz/corpus/fuzz_trace/horovod" timeline.json
	merges timeline.json
	says "slices 5" "process timeline.json" "timeline.json: NEGOTIATE_ALLREDUCE x 1" \
		"timeline.json: GLOO_ALLREDUCE x 1" "file timeline.json: wall clock of its host, 5 slices"
}

# bats test_tags=all
@test "what torch.profiler writes" {
	[ -x "$ROOT/build/venv/bin/python3" ] || skip "make venv"
	cat > train.py <<- 'P'
		import sys
		import torch
		from torch.profiler import ProfilerActivity, profile
		with profile(activities=[ProfilerActivity.CPU], with_stack=True, profile_memory=True) as p:
		    torch.nn.Linear(64, 64)(torch.randn(8, 64)).sum().backward()
		p.export_chrome_trace(sys.argv[1])
	P
	"$ROOT/build/venv/bin/python3" train.py torch.json
	gzip -k torch.json
	run -0 "$RUNNER" --trace-merge out.json torch.json torch.json.gz
	[[ $output == *"clocks is not known" ]]
	reads out.json
	says "torch.json.gz: python3: aten::linear x 1" "torch.json: python3: aten::linear x 1" \
		"file torch.json: wall clock of its host"
	run -0 "$RUNNER" --trace-merge out.pf torch.json torch.json.gz
	reads out.pf
	says "torch.json.gz: python3: aten::linear x 1"
}

@test "a clock that is not known is said" {
	echo '[{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":2}]' > none.json
	mkdir ranks
	"$BUILD/helpers/traces" ranks 1 10
	merges none.json ranks/0
	[[ $merged == *", 1 file with an unknown clock; the error of the clocks is not known" ]]
	says "file none.json: not known: begins with the first, 1 slices"
}

@test "slices of a track that cross each other are beside each other" {
	cat > crossed <<- 'J'
		[
		{"name":"berth_timeline","ph":"M","pid":0,"args":{"rank":0,"host":"a","wall_ns":1700000000000000000}},
		{"name":"QUEUE","ph":"X","pid":0,"tid":0,"ts":1,"dur":10},
		{"name":"QUEUE","ph":"X","pid":0,"tid":0,"ts":2,"dur":10},
		{"name":"QUEUE","ph":"X","pid":0,"tid":0,"ts":3,"dur":10},
		{"name":"ALLREDUCE","ph":"X","pid":0,"tid":0,"ts":0,"dur":14}
		]
	J
	merges crossed
	says "slices 4" "rank 0 (a): QUEUE x 3"
}

@test "what is no timeline" {
	run -2 "$RUNNER" --trace-merge out.json
	says "--trace-merge: no file to merge"
	run -2 "$RUNNER" --trace-merge out.json nowhere
	says "runner: cannot read the timeline 'nowhere': No such file"
	echo '[{"ph":"X",}]' > bad
	run -2 "$RUNNER" --trace-merge out.json bad
	says "runner: 'bad' is not a timeline: byte 11: no string"
	[ ! -e out.json ]
	run -2 "$RUNNER" --trace-merge bad bad
	says "runner: --trace-merge: 'bad' is there already" "hint: name the new file first"
	echo '[]' > good
	run -2 "$RUNNER" --trace-merge nowhere/out.json good
	says "runner: cannot write the timeline 'nowhere/out.json': No such file"
	run -2 "$RUNNER" --trace-merge /dev/full good
	says "runner: cannot write the timeline '/dev/full': No space left"
	printf '\037\213\010\000broken.........' > broken.gz
	run -2 "$RUNNER" --trace-merge out.json broken.gz
	says "runner: cannot read the timeline 'broken.gz': its gzip data are damaged"
}
