#!/usr/bin/env bats
# limit_s: 600
# takes_s: 25
# more: 4 ranks, each of which imports PyTorch
# alone: PyTorch takes all cores while ranks import it, and other suites measure times
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output and lines
# The examples in Python over libberth, with 1, 2 and 4 ranks.
load common

setup() {
	PYTHON=$ROOT/build/venv/bin/python3
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
	[ -e "$ROOT/build/venv/installed" ] || skip "no PyTorch in build/venv (make venv)"
	export PYTHONPATH=$ROOT/lib/python PYTHONDONTWRITEBYTECODE=1 BERTH_LIBRARY=$BUILD/lib/libberth.so
	export OMP_NUM_THREADS=1
}

example() { # NP NAME OPTION...
	run timeout -k 5 60 "$RUNNER" -q --no-tag --oversubscribe -np "$1" "$PYTHON" "$ROOT/examples/$2.py" "${@:3}"
	[ "$status" = 0 ] || { echo "$* ended with $status: $output"; return 1; }
}

# The losses of the epochs, one a line; an accuracy of at least 0.A at the end.
learned() { # A
	grep -o 'loss [0-9.]*' <<< "$output" | cut -d' ' -f2 > "$T/losses"
	sort -rgc "$T/losses" || { echo "the loss does not fall: $output"; return 1; }
	[[ $(grep -o 'accuracy [0-9.]*' <<< "$output" | tail -1) > "accuracy 0.$1" ]] || { echo "$output"; return 1; }
}

# The same, to 3 places, as the first time: these do not depend on the number of ranks.
same_losses() {
	[ -e "$T/first" ] || cp "$T/losses" "$T/first"
	paste "$T/first" "$T/losses" | awk '{ d = $1 - $2; if (NF != 2 || d * d > 1e-6) bad = 1 } END { exit bad || !NR }' ||
		{ paste "$T/first" "$T/losses"; return 1; }
}

# Each step has 32 pictures in all, and one learning rate: so the losses are alike, too.
digits() { # NP
	example "$1" pytorch_digits --no-cuda --epochs 3 --checkpoint-dir "$T/$1" --batch-size $((32 / $1)) \
		--lr "0.0$((8 / $1))"
}

digits_learn() { # NP...
	local np
	for np; do
		digits "$np"
		learned 8
		same_losses
		says "on 297 digits it never saw"
		[ "$(cd "$T/$np" && echo *)" = "epoch-0001.pt epoch-0002.pt epoch-0003.pt" ]
	done
}

@test "pytorch_digits learns the same with any number of ranks, and goes on where its last checkpoint is" {
	digits_learn 1 2
	rm "$T/2/epoch-0003.pt"
	digits 2
	[ "$(grep -c '^epoch' <<< "$output")" = 1 ]
	learned 8
	sed -i 1,2d "$T/first"
	same_losses
}

# bats test_tags=all
@test "pytorch_digits, with 4 ranks" { digits_learn 2 4; }

# bats test_tags=all
@test "pytorch_digits, as a program for Horovod" {
	cp -r "$ROOT"/examples/{data,digits.py,train_digits.py} "$T"
	sed 's/^import berth.torch as hvd/import horovod.torch as hvd/' "$ROOT/examples/pytorch_digits.py" > "$T/for_horovod.py"
	run ! grep -w berth "$T/for_horovod.py"
	unset PYTHONPATH BERTH_LIBRARY
	run -0 timeout -k 5 60 "$RUNNER" --horovod -q --no-tag --oversubscribe -np 2 "$PYTHON" "$T/for_horovod.py" --no-cuda --epochs 3
	learned 8
}

synthetic() { # NP OPTION...
	example "$1" pytorch_synthetic_benchmark --no-cuda --batch-size 4 --num-iters 2 "${@:2}"
	says "$1 x CPU" "iter 1: " "img/sec per CPU: "
	grep -qE "^total img/sec on $1 CPU\(s\): [1-9][0-9]*\.[0-9] " <<< "$output"
}

@test "pytorch_synthetic_benchmark says what each rank does, and all together" { synthetic 2 --fp16-allreduce; }

# bats test_tags=all
@test "pytorch_synthetic_benchmark, alone, and Adasum with 4 ranks" {
	synthetic 1
	synthetic 4 --use-adasum
}

ddp_learns() { # NP...
	local np
	for np; do
		example "$np" ddp_berth --epochs 4
		learned 8
		same_losses
	done
}

@test "ddp_berth learns the same with any number of ranks" { ddp_learns 1 2; }

# bats test_tags=all
@test "ddp_berth, with 4 ranks" { ddp_learns 2 4; }

fsdp_learns() { # NP...
	local np
	for np; do
		example "$np" fsdp_berth --epochs 3
		learned 8
		same_losses
		[ "$(sed -n "s/.* of $np keeps \([0-9]*\) of 13130 .*/\1/p" <<< "$output" | awk '{ n += $1 } END { print n }')" = 13130 ]
	done
}

# bats test_tags=all
@test "fsdp_berth learns the same with any number of ranks, each with its part" { fsdp_learns 1 2; }

# bats test_tags=all
@test "fsdp_berth, with 4 ranks, and in bfloat16" {
	fsdp_learns 1 4
	example 2 fsdp_berth --epochs 3 --bf16
	learned 8
}
