#!/usr/bin/env bats
# limit_s: 240
# takes_s: 20
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the ranks' shells; bats sets output, stderr and lines
# Output and input: labels, whole lines, every byte, files, terminals.
load common

r() { timeout -k 5 60 "$RUNNER" "$@"; }

# stdout of r alone.
out() { r "$@" 2> "$T/err" < /dev/null; }

teardown() {
	[ -z "${pid-}" ] || kill -KILL "$pid" 2> /dev/null || true
}

# In a terminal of its own: COMMAND as a string; the terminal's \r is taken away.
in_terminal() { NO_COLOR=1 timeout -k 5 30 script -qefc "$1" /dev/null < /dev/null | tr -d '\r'; }

@test "lines are labelled as horovodrun does it, stdout to stdout, stderr to stderr" {
	run -0 --separate-stderr r -np 2 sh -c 'echo out; echo err >&2' < /dev/null
	[ "$(sort <<< "$output")" = $'[0]<stdout>:out\n[1]<stdout>:out' ]
	[ "$(grep -v " ranks share " <<< "$stderr" | sort)" = $'[0]<stderr>:err\n[1]<stderr>:err' ]
}

@test "--no-tag: lines alone; --timestamps: the time in front" {
	run -0 out --no-tag -np 2 echo x
	[ "$output" = $'x\nx' ]
	run -0 out --timestamps -np 1 echo x
	[[ $output =~ ^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}[+-][0-9]{2}:[0-9]{2}\ \[0\]\<stdout\>:x$ ]]
	before=$(date +%s%3N)
	run -0 out --timestamps --no-tag -np 1 echo x
	at=$(date -d "${output% x}" +%s%3N)
	[ "$before" -le "$at" ]
	[ "$at" -le "$(date +%s%3N)" ]
	run -0 out --timestamps --no-tag -np 1 sh -c 'echo; sleep 1; date +%s%3N' # another second
	read -r at before <<< "${lines[1]}"
	[ "$before" -le "$(date -d "$at" +%s%3N)" ]
	TZ=Asia/Kathmandu run -0 out --timestamps --no-tag -np 1 echo x
	[[ $output =~ \+05:45\ x$ ]]
}

@test "bytes arrive as they are: all values, no line end at the end" {
	/usr/bin/python3 -c 'import os, random
random.seed(1)
os.write(1, bytes(range(256)) * 64 + random.randbytes(3 << 20))' > "$T/bytes"
	out --no-tag -np 1 cat "$T/bytes" > "$T/got"
	cmp "$T/bytes" "$T/got"
	out -np 1 --output-filename "$T/log" cat "$T/bytes" > "$T/got"
	cmp "$T/bytes" "$T/log/rank.0/stdout"
	# with labels taken away, what is left are the bytes, though long lines may be cut; but
	# an update gives way to the next one
	tr '\r' x < "$T/bytes" > "$T/no_updates"
	mv "$T/no_updates" "$T/bytes"
	out -np 1 cat "$T/bytes" > "$T/got"
	/usr/bin/python3 - "$T/bytes" "$T/got" <<- 'P'
		import sys
		bytes_, got = (open(f, "rb").read() for f in sys.argv[1:])
		assert got.replace(b"[0]<stdout>:", b"") == bytes_
	P
}

@test "lines of many ranks stay whole, and each rank's stay in order" {
	run -0 out -np 6 /usr/bin/python3 -u -c '
import os, sys
for i in range(500):
    for piece in (f"{i} ", "x" * (i % 97) + " ", os.environ["RANK"], "\n"):
        os.write(1, piece.encode())'
	/usr/bin/python3 -c '
import sys
at = {}
for line in sys.stdin:
    label, rest = line.rstrip("\n").split(":", 1)
    i, xs, rank = rest.split(" ")
    assert label == f"[{rank}]<stdout>" and len(xs) == int(i) % 97, line
    assert at.get(rank, 0) == int(i), line
    at[rank] = int(i) + 1
assert at == {str(r): 500 for r in range(6)}, at' <<< "$output"
}

@test "a line longer than any buffer arrives, and nothing gets into it" {
	run -0 --separate-stderr r -np 2 sh -c 'head -c 300000 /dev/zero | tr "\0" $RANK; echo' < /dev/null
	for rank in 0 1; do
		[ "$(grep -o "$rank*" <<< "${output//\[[01]\]<stdout>:/}" | tr -d '\n' | wc -c)" = 300000 ]
	done
	[ "$(grep -c '01\|10' <<< "${output//\[[01]\]<stdout>:/}")" = 0 ]
}

@test "--tag-style: [3] and a blank, or none; no colour where there is no terminal, but for --color always" {
	run -0 out --tag-style short -np 1 sh -c 'echo o; echo e >&2'
	[ "$output" = '[0] o' ]
	[ "$(cat "$T/err")" = '[0] e' ]
	BERTH_TAG_STYLE=none run -0 out -np 2 echo x
	[ "$output" = $'x\nx' ]
	run -0 out --color always -np 1 --output-filename "$T/log" echo o
	[ "$output" = $'\e[36m[0]<stdout>:\e[0mo' ]
	[ "$(cat "$T/log/rank.0/stdout")" = o ]
}

@test "updates in a file: the last one is a line, and no line has two labels" {
	out -np 1 printf '10%%\r20%%\r30%%\r\nnext\n' > "$T/got"
	printf '[0]<stdout>:20%%\n[0]<stdout>:30%%\r\n[0]<stdout>:next\n' | cmp - "$T/got"
	# as tqdm does it, from two ranks at once, and prints between
	cat > "$T/bars.py" <<- 'P'
		import os, sys, time
		rank = os.environ["RANK"]
		for i in range(400):
		    os.write(2, f"\r{rank} {i:3d}/400 {'#' * (i // 10):40s}|".encode())
		    if i % 100 == 50:
		        print(f"{rank} print {i}", flush=True)
		    time.sleep(0.001)
		os.write(2, f"\r{rank} 400/400 done|\n".encode())
	P
	r -np 2 --output-filename "$T/log" /usr/bin/python3 "$T/bars.py" > "$T/all" 2>&1 < /dev/null
	grep '^\[' "$T/all" > "$T/lines" # but for notes of runner
	run ! grep -vE '^\[([01])\]<(stderr>:\1 [ 0-9]{3}/400 #* *\||stderr>:\1 400/400 done\||stdout>:\1 print [0-9]+)$' "$T/lines"
	for rank in 0 1; do
		grep -qxF "[$rank]<stderr>:$rank 400/400 done|" "$T/lines"
		[ "$(grep -c "^\[$rank\]<stdout>:$rank print" "$T/lines")" = 4 ]
		[ "$(tr '\r' '\n' < "$T/log/rank.$rank/stderr" | grep -c /400)" = 401 ]
	done
}

@test "an update is not run into another rank's, though no end comes: nor is the last one lost" {
	run -0 out -np 3 sh -c 'printf "1%%\r2%%\r$RANK"'
	[ "$(sort <<< "$output")" = $'[0]<stdout>:0\n[1]<stdout>:1\n[2]<stdout>:2' ]
}

@test "a last line without its end is shown, and not run into another rank's" {
	out -np 1 printf 'a\nb' > "$T/got"
	printf '[0]<stdout>:a\n[0]<stdout>:b' | cmp - "$T/got"
	run -0 out -np 3 sh -c 'printf end$RANK'
	[ "$(sort <<< "$output")" = $'[0]<stdout>:end0\n[1]<stdout>:end1\n[2]<stdout>:end2' ]
}

@test "lines come when they are written, not when the job ends" {
	mkfifo "$T/go"
	exec 8<> "$T/go"
	r -np 1 sh -c 'echo first; read x < "$0"; echo second' "$T/go" < /dev/null > "$T/got" 2> "$T/err" 8>&- &
	wait_for grep -q first "$T/got"
	run ! grep -q second "$T/got"
	echo >&8
	wait $!
	grep -q second "$T/got"
}

@test "stdout and stderr to one pipe: lines stay whole, the streams are told apart" {
	r -np 4 sh -c 'i=0; while [ $i -lt 200 ]; do echo "o $i o"; echo "e $i e" >&2; i=$((i + 1)); done' \
		< /dev/null 2>&1 | cat > "$T/got"
	grep -v 'ranks share' "$T/got" > "$T/lines"
	[ "$(wc -l < "$T/lines")" = 1600 ]
	run ! grep -vE '^\[[0-3]\](<stdout>:o [0-9]+ o|<stderr>:e [0-9]+ e)$' "$T/lines"
}

@test "a slow reader loses nothing, and memory stays bounded" {
	mkfifo "$T/pipe"
	# freed memory that the address sanitizer keeps is not of the program
	[ -z "${ASAN_OPTIONS-}" ] || export ASAN_OPTIONS=$ASAN_OPTIONS:quarantine_size_mb=1
	# 180 MB of lines; the reader takes a third, waits, then takes the rest
	"$RUNNER" -np 2 sh -c 'yes "$RANK 3456789012345678901234567890123456789012345678901234567890123456789012345678" |
		head -n 1000000' < /dev/null > "$T/pipe" 2> "$T/err" &
	pid=$!
	exec 7< "$T/pipe"
	head -c 60000000 <&7 > "$T/part"
	agent=$(pgrep -x -P "$(pgrep -P "$pid")" berth-agent)
	at_rest() { # both have stopped reading: their CPU time stands still
		local before
		before=$(cut -d' ' -f14,15 "/proc/$pid/stat" "/proc/$agent/stat")
		sleep 0.3
		[ "$before" = "$(cut -d' ' -f14,15 "/proc/$pid/stat" "/proc/$agent/stat")" ]
	}
	wait_for at_rest
	for p in $pid $agent; do
		[ "$(sed -n 's/^VmHWM:\s*\([0-9]*\) kB/\1/p' "/proc/$p/status")" -lt 40000 ] ||
			{ grep -E '^(Name|VmHWM)' "/proc/$p/status"; return 1; }
	done
	cat "$T/part" - <&7 |
		awk '{ n[$1]++; if (length($0) != 90) bad++ } END { for (k in n) print k, n[k]; print bad + 0 }' | sort > "$T/count"
	wait "$pid"
	exec 7<&-
	[ "$(cat "$T/count")" = $'0\n[0]<stdout>:0 1000000\n[1]<stdout>:1 1000000' ]
}

@test "a stopped reader does not stop the end of a job: ^C, ^C kills, ^C leaves what is unread" {
	mkfifo "$T/pipe"
	exec 7<> "$T/pipe"
	env --default-signal "$RUNNER" -np 2 -x MARK="$T/mark" sh -c 'trap "" INT; yes' < /dev/null > "$T/pipe" 2> "$T/err" 7<&- &
	pid=$!
	full() { [ "$(head -c 1 <&7 | wc -c)" = 1 ]; }
	wait_for full
	wait_for alive_with "MARK=$T/mark"
	kill -INT "$pid"
	wait_for grep -q 'again ends them now' "$T/err"
	kill -INT "$pid"
	none_left() { [ -z "$(alive_with "MARK=$T/mark")" ]; }
	wait_for none_left
	kill -INT "$pid"
	wait_for test ! -e "/proc/$pid"
	exec 7<&-
}

@test "--output-filename: DIR/rank.N/{stdout,stderr}, raw, and the terminal too; padded as horovodrun does" {
	run -0 out -np 1 --output-filename "$T/one" sh -c 'echo x; echo y >&2'
	[ "$output" = "[0]<stdout>:x" ]
	[ "$(cat "$T/one/rank.0/stdout")" = x ]
	[ "$(cat "$T/one/rank.0/stderr")" = y ]
	run -0 out -np 10 --output-filename "$T/ten" echo x
	[ "$(cd "$T/ten" && echo *)" = "rank.0 rank.1 rank.2 rank.3 rank.4 rank.5 rank.6 rank.7 rank.8 rank.9" ]
	run -0 out -np 11 --log-dir "$T/a/b/eleven" sh -c 'echo $RANK'
	[ "$(cd "$T/a/b/eleven" && echo rank.0*)" = "rank.00 rank.01 rank.02 rank.03 rank.04 rank.05 rank.06 rank.07 rank.08 rank.09" ]
	[ "$(cat "$T/a/b/eleven/rank.10/stdout")" = 10 ]
	[ -e "$T/a/b/eleven/rank.10/stderr" ]
}

@test "--output-filename again: new files, and the old ones are kept, with a note" {
	out -np 3 --output-filename "$T/log" echo long line
	run -0 --separate-stderr r -np 1 --output-filename "$T/log" echo x < /dev/null
	[ "$(cat "$T/log/rank.0/stdout")" = x ]
	[ ! -e "$T/log/rank.1" ]
	[ "$(cat "$T/log/run.1/rank.2/stdout")" = 'long line' ]
	[[ $stderr == *"runner: --output-filename: the files of an earlier run are now in '$T/log/run.1'"* ]]
	run -0 --separate-stderr r -q -np 1 --output-filename "$T/log" echo y < /dev/null
	no_stderr
	[ "$(cat "$T/log/run.2/rank.0/stdout")" = x ]
}

@test "--output-filename with patterns: a file for each rank, a folder for each job" {
	run -0 out -np 2 --output-filename "$T/out.%r" sh -c 'echo $RANK; echo e$RANK >&2'
	[ "$(cat "$T/out.0" "$T/out.1" "$T/out.0.err" "$T/out.1.err")" = $'0\n1\ne0\ne1' ]
	run -0 out -np 2 -H localhost:2 --output-filename "$T/%N/%3t.txt" sh -c 'echo $RANK'
	[ "$(cat "$T/localhost/001.txt")" = 1 ]
	run -0 out --no-tag -np 1 --output-filename "$T/runs/%j" sh -c 'echo $BERTH_JOB'
	[ "$(cat "$T/runs/$output/rank.0/stdout")" = "$output" ]
	run -2 r -np 1 --output-filename "$T/%y" true < /dev/null
	says "--output-filename '$T/%y': unknown pattern"
}

@test "a restart writes to the same files, behind what is there" {
	run -0 out --restarts 1 -np 1 --output-filename "$T/log.%r" sh -c 'echo $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ]'
	[ "$(cat "$T/log.0")" = $'0\n1' ]
	[ ! -e "$T/log.0.1" ]
}

@test "another user's link, file or folder in a shared folder: nothing is written there" {
	[ "$(id -u)" = 0 ] || skip "another user's files need root"
	mkdir "$T/shared"
	for sticky in 0777 1777; do
		chmod "$sticky" "$T/shared"
		echo precious > "$T/precious"
		ln -s ../precious "$T/shared/events"
		echo theirs > "$T/shared/file"
		ln -s .. "$T/shared/log"
		mkfifo "$T/shared/fifo"
		chown -h 54321 "$T/shared"/*
		for f in events file fifo; do
			run -2 r -np 1 --events "$T/shared/$f" true < /dev/null
			says "cannot write --events file '$T/shared/$f': " "belongs to another user (uid 54321)"
			run -2 r -np 1 --output-filename "$T/shared/$f" true < /dev/null
			says "belongs to another user (uid 54321)"
		done
		run -2 r -np 1 --output-filename "$T/shared/log" true < /dev/null
		says "cannot create '$T/shared/log' for --output-filename: a link there belongs to another user (uid 54321)"
		[ "$(cat "$T/precious" "$T/shared/file")" = $'precious\ntheirs' ]
		[ ! -e "$T/rank.0" ]
		rm "$T/shared"/*
	done
}

@test "--show: only these ranks are shown, files and reports have all" {
	run -0 --separate-stderr r --show 0,2-3 --output-filename "$T/log" -np 5 sh -c 'echo $RANK; echo e$RANK >&2' < /dev/null
	[ "$(sort <<< "$output")" = $'[0]<stdout>:0\n[2]<stdout>:2\n[3]<stdout>:3' ]
	[ "$(grep stderr <<< "$stderr" | sort)" = $'[0]<stderr>:e0\n[2]<stderr>:e2\n[3]<stderr>:e3' ]
	[ "$(cat "$T/log"/rank.*/stdout)" = $'0\n1\n2\n3\n4' ]
	run -0 --separate-stderr r --show 1,errors -np 2 sh -c 'echo $RANK; echo e$RANK >&2' < /dev/null
	[ "$output" = "[1]<stdout>:1" ]
	[ "$(grep stderr <<< "$stderr" | sort)" = $'[0]<stderr>:e0\n[1]<stderr>:e1' ]
	run -4 --separate-stderr r --show none -np 2 sh -c 'echo out; echo why >&2; [ $RANK = 0 ] || exit 4' < /dev/null
	[ "$output" = "" ]
	[[ $stderr == *"  | why"* ]]
}

@test "a hidden rank that writes a lot does not hold the job up" {
	run -0 out --show 1 -np 2 sh -c '[ $RANK = 0 ] && { yes | head -c 20000000; echo; } || echo done'
	[ "$output" = "[1]<stdout>:done" ]
}

@test "stdout of a rank is a pipe when runner's is, stderr always" {
	run -0 out -np 2 /usr/bin/python3 -c 'import os; print(os.isatty(0), os.isatty(1), os.isatty(2))'
	[ "$(sort -u <<< "${output//\[[01]\]<stdout>:/}")" = "False False False" ]
}

@test "--pty: stdout of a rank is a terminal, and bytes still arrive as they are" {
	run -0 out --pty -np 2 /usr/bin/python3 -c 'import os; print(os.isatty(1), os.isatty(2))'
	[ "$(sort -u <<< "${output//\[[01]\]<stdout>:/}")" = "True False" ]
	head -c 300000 /dev/urandom > "$T/bytes"
	out --pty --no-tag -np 1 cat "$T/bytes" > "$T/got"
	cmp "$T/bytes" "$T/got"
}

@test "--pty: what ranks write just before they end is not lost" {
	for _ in 1 2 3 4 5; do
		run -0 out --pty -np 3 seq 500
		[ "${#lines[@]}" = 1500 ]
	done
}

@test "in a terminal: ranks have one too, and C programs write line by line" {
	run -0 in_terminal "$RUNNER -np 2 /usr/bin/python3 -c 'import os; print(os.isatty(1), os.isatty(2))'"
	[ "$(grep -c '<stdout>:True False' <<< "$output")" = 2 ]
	# awk buffers where it writes to a pipe
	run -0 in_terminal "$RUNNER -np 1 awk 'BEGIN { print \"first\"; while ((getline l < \"$T/nothing\") > 0); system(\"echo second\") }'"
	[[ $output == *first*second* ]]
}

@test "stdin goes to rank 0, and there alone" {
	run -0 out -np 2 true
	run -0 bash -c 'echo DATA | timeout 30 "$0" -np 3 sh -c "cat; echo end" 2> /dev/null' "$RUNNER"
	[ "$(sort <<< "$output")" = $'[0]<stdout>:DATA\n[0]<stdout>:end\n[1]<stdout>:end\n[2]<stdout>:end' ]
}

@test "--stdin N, all, none" {
	feed() { echo DATA | r --stdin "$1" -np 3 cat 2> /dev/null | sort; }
	[ "$(feed 2)" = "[2]<stdout>:DATA" ]
	[ "$(feed all)" = $'[0]<stdout>:DATA\n[1]<stdout>:DATA\n[2]<stdout>:DATA' ]
	[ "$(feed none)" = "" ]
	[ "$(echo DATA | r --stdin all -np 2 --allow-same-host -H localhost,127.0.0.1 cat 2> /dev/null | sort)" = $'[0]<stdout>:DATA\n[1]<stdout>:DATA' ]
}

@test "stdin keeps every byte: 50 MB through a rank" {
	/usr/bin/python3 -c 'import os, random
random.seed(2)
for _ in range(50): os.write(1, random.randbytes(1 << 20)) ' > "$T/big"
	want=$(sha256sum < "$T/big")
	[ "$(r --no-tag -np 1 sha256sum < "$T/big")" = "$want" ]
	[ "$(r --no-tag -np 1 cat < <(cat "$T/big") | sha256sum)" = "$want" ]
}

@test "stdin to all: each rank has every byte, and the slowest sets the pace" {
	seq 300000 > "$T/lines"
	want=$(sha256sum < "$T/lines")
	run -0 r --stdin all --no-tag -np 3 sh -c '[ $RANK = 1 ] && sleep 0.3; sha256sum' < "$T/lines"
	[ "$(grep -cF "$want" <<< "$output")" = 3 ]
}

@test "a rank that does not read its stdin does not hold the job up" {
	run -0 bash -c 'head -c 5000000 /dev/zero | timeout 30 "$0" -np 2 true 2> /dev/null' "$RUNNER"
	run -0 bash -c 'yes | timeout 30 "$0" --no-tag -np 1 head -1 2> /dev/null' "$RUNNER"
	[ "$output" = y ]
}

@test "stdin from a file, /dev/null, closed, and a terminal" {
	printf 'one\ntwo\n' > "$T/in"
	[ "$(r --no-tag -np 1 cat < "$T/in")" = $'one\ntwo' ]
	[ "$(r --no-tag -np 1 sh -c 'cat; echo end' < /dev/null)" = end ]
	[ "$(r --no-tag -np 1 sh -c 'cat; echo end' <&-)" = end ]
	run -0 bash -c 'timeout 20 script -qefc "$0 --no-tag -np 1 head -1" /dev/null <<< typed' "$RUNNER"
	says typed
}

@test "what a rank does not read is left for the next command" {
	skip_reason=$(printf 'a\n' | { timeout 20 "$RUNNER" --stdin none -np 1 true 2> /dev/null; cat; })
	[ "$skip_reason" = a ]
}

@test "stdout or stderr closed: the job runs" {
	run -0 bash -c 'timeout 20 "$0" -np 1 sh -c "echo x >&2" 2>&1 >&-' "$RUNNER"
	says '[0]<stderr>:x'
	run -0 bash -c 'timeout 20 "$0" -np 1 echo x 2>&-' "$RUNNER"
	[ "$output" = '[0]<stdout>:x' ]
}

@test "-q: errors alone; -v says what runner does" {
	run -0 --separate-stderr r -q -np 5 true < /dev/null
	no_stderr
	run -3 --separate-stderr r -q -np 1 sh -c 'exit 3' < /dev/null
	[[ $stderr == "runner: rank 0 on "*"exited with status 3" ]]
	run -0 --separate-stderr r -v -np 1 true < /dev/null
	[[ $stderr == *"is up"* ]]
}

# ---- equal lines of several ranks ----

# Each once: 0,2-3 are three ranks.
ranks_that_say() { # LINE
	sed -n "s/^\[\([0-9,-]*\)\]$1\$/\1/p" <<< "$output" | tr , '\n' |
		while IFS=- read -r a b; do seq "$a" "${b:-$a}"; done | sort -n | tr '\n' ' '
}

@test "--coalesce: equal lines come once, with the ranks; those of each rank keep their order" {
	# sorted: all at once, however slow this machine is now
	run -0 r --coalesce --sort-output -np 4 sh -c 'echo begin; echo "rank $RANK"; echo warning >&2; echo end'
	for line in '<stdout>:begin' '<stdout>:end' '<stderr>:warning'; do
		[ "$(ranks_that_say "$line")" = "0 1 2 3 " ] || { echo "$output"; return 1; }
	done
	for i in 0 1 2 3; do
		[[ $output == *'begin'*"[$i]<stdout>:rank $i"*'end'* ]] || { echo "$output"; return 1; }
	done
	# a slow machine may keep one of them for longer than lines wait
	for i in 1 2 3 4 5; do
		run -0 out --coalesce -np 4 echo x
		[ "$output" != '[0-3]<stdout>:x' ] || break
	done
	[ "$output" = '[0-3]<stdout>:x' ] || { echo "$output"; return 1; }
	run -0 r --coalesce --sort-output --tag-style short -np 3 sh -c '[ $RANK = 1 ] || echo x; [ $RANK != 1 ] || printf y'
	says '[0,2] x' '[1] y'
	run -0 out --coalesce --sort-output --output-filename "$T/log" -np 3 echo x
	[ "$output" = '[0-2]<stdout>:x' ]
	[ "$(cat "$T"/log/rank.*/stdout | wc -l)" = 3 ]
}

@test "--coalesce: a line comes half a second later, while ranks still run" {
	mkfifo "$T/never"
	"$RUNNER" --coalesce -np 2 sh -c 'echo up; [ $RANK = 0 ] || echo mine; read -r x < "$0"' "$T/never" \
		> "$T/out" 2> "$T/err" < /dev/null 3>&- &
	pid=$!
	wait_for grep -q '\[0-1\]<stdout>:up' "$T/out"
	wait_for grep -q '\[1\]<stdout>:mine' "$T/out"
}

# ---- sorted at the end ----

@test "--sort-output: rank after rank when the job has ended, each with its last line" {
	run -0 out --sort-output -np 3 sh -c 'sleep 0.$((3 - RANK)); echo "a$RANK"; echo "b$RANK"; printf end'
	[ "$output" = "$(for i in 0 1 2; do printf "[$i]<stdout>:%s\n" a$i b$i end; done)" ] || { echo "$output"; return 1; }
	run -0 r -q --sort-output --tag-style short -np 2 sh -c 'echo out; echo err >&2' < /dev/null
	[ "$output" = $'[0] out\n[0] err\n[1] out\n[1] err' ] || { echo "$output"; return 1; }
	# more than is queued at a time, to a slow reader
	"$RUNNER" --sort-output --no-tag -np 2 sh -c 'seq $((RANK * 100000 + 1)) $((RANK * 100000 + 100000))' < /dev/null |
		{ sleep 0.3; cat; } > "$T/all"
	cmp "$T/all" <(seq 200000)
	run -0 out --sort-output --coalesce -np 2 echo x
	[ "$output" = '[0-1]<stdout>:x' ]
}

@test "--sort-output: the time of a line is when it came; a disk that is full, or not there" {
	run -0 out --sort-output --timestamps -np 2 sh -c 'date +%s; [ $RANK = 0 ] || sleep 1.5'
	at=$(date -d "${lines[0]%% *}" +%s)
	[ $((at - ${lines[0]##*:})) -le 1 ] || { echo "$output"; return 1; }
	TMPDIR=$T/none run -125 out --sort-output -np 1 true
	grep "^runner: --sort-output cannot write a file in '$T/none': No such file or directory" "$T/err"
	# what the file took comes before the rest, nothing is lost, and no line is torn
	run -0 --separate-stderr bash -c 'trap "" XFSZ; ulimit -f 16; timeout 30 "$0" --sort-output --no-tag -np 1 sh -c "$1" < /dev/null | cat
		exit "${PIPESTATUS[0]}"' "$RUNNER" 'for i in $(seq 200); do echo $i; done; printf 20; sleep 0.1; echo 1; seq 202 20000'
	[[ $stderr == *"warning: --sort-output cannot write a file in "*"; output is shown as it comes"* ]] || { echo "$stderr"; return 1; }
	cmp <(echo "$output") <(seq 20000)
}
