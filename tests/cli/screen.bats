#!/usr/bin/env bats
# limit_s: 240
# takes_s: 5
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the ranks' shells; bats sets output
# What a person sees: runner on a terminal of its own, with a screen (tests/helpers/terminal.py).
load common

setup() {
	/usr/bin/python3 -c 'import pyte' 2> /dev/null || skip "no pyte (tests/deps check installs it)"
	export TERM=xterm
	unset NO_COLOR
	mkdir "$T/go"
}

teardown() {
	exec 5>&- 6<&- || true
}

# runner OPTION... on the terminal; t gives it steps.
terminal() {
	mkfifo "$T/steps" "$T/answers"
	TERMINAL_LOG=$T/shown /usr/bin/python3 "$ROOT/tests/helpers/terminal.py" \
		env --default-signal "$RUNNER" -q "$@" < "$T/steps" > "$T/answers" 2>&1 3>&- &
	exec 5> "$T/steps" 6< "$T/answers"
}

t() {
	local step=$*
	printf '%s\n' "$step" >&5
	read -r -t 70 answer <&6 || answer='no answer'
	[[ $answer == ok* ]] || { echo "$step: $answer"; return 1; }
}

# The rows of the screen are these, in any order.
rows_are() {
	local want
	t rows
	want=$(printf '%s\n' "$@" | sort)
	[ "$(/usr/bin/python3 -c 'import json, sys; print(*sorted(json.loads(sys.argv[1])), sep="\n")' "${answer#ok }" | LC_ALL=C sort)" = "$(LC_ALL=C sort <<< "$want")" ] ||
		{ echo "rows: $answer"; return 1; }
}

# Ranks wait for a step: until /go/NAME is there.
AWAIT='await() { until [ -e "$0/$1" ]; do sleep 0.02; done; }; '
go() { touch "$T/go/$1"; }

@test "a prompt is shown before its answer: input(), and the answer's line is the rank's" {
	terminal -np 1 /usr/bin/python3 -c 'n = input("name? "); print("hello", n)'
	t row '[0]<stdout>:name?'
	t send 'Ada\r'
	t row '[0]<stdout>:hello Ada'
	t end
	rows_are '[0]<stdout>:name? Ada' '[0]<stdout>:hello Ada'
}

@test "a prompt is shown before its answer: pdb, and a REPL" {
	echo 'answer = 42' > "$T/x.py"
	terminal -np 1 /usr/bin/python3 -m pdb "$T/x.py"
	t row '[0]<stdout>:(Pdb)'
	t send 'p 6 * 7\r'
	t row '[0]<stdout>:42'
	t send 'q\r'
	t end
	exec 5>&- 6<&-
	rm "$T/steps" "$T/answers"
	terminal -np 1 /usr/bin/python3 -c 'import code; code.interact(banner="", exitmsg="")'
	t row '[0]<stdout>:>>>'
	t send 'print(6 * 7)\r'
	t row '[0]<stdout>:42'
	t send '\x04'
	t end
}

@test "dots of a test run come one by one, on one line" {
	terminal -np 1 sh -c "$AWAIT"'printf .; await 1; printf .; await 2; printf F; await 3; echo; echo done' "$T/go"
	t row '[0]<stdout>:.'
	go 1
	t row '[0]<stdout>:..'
	go 2
	t row '[0]<stdout>:..F'
	go 3
	t end
	rows_are '[0]<stdout>:..F' '[0]<stdout>:done'
}

@test "another rank's line does not run into a prompt, and nothing is shown twice" {
	terminal -np 2 sh -c "$AWAIT"'if [ $RANK = 0 ]; then printf "name? "; await 2; echo Ada; else await 1; echo other; fi' "$T/go"
	t row '[0]<stdout>:name?'
	go 1
	t row '[1]<stdout>:other'
	go 2
	t end
	rows_are '[0]<stdout>:name?' '[1]<stdout>:other' '[0]<stdout>:Ada'
}

BAR='bar() { printf "\r%3d%%|%-40s|" $1 "$(head -c $(($1 * 2 / 5)) /dev/zero | tr "\0" "#")" >&2; }; '
full() { printf '%3d%%|%-40s|' "$1" "$(head -c $(($1 * 2 / 5)) /dev/zero | tr '\0' '#')"; }

@test "two ranks' bars, then a print: nothing of a bar is left behind the text" {
	terminal -np 2 sh -c "$AWAIT$BAR"'await 1.$RANK; bar 70; await 2.$RANK; echo x; await 3.$RANK; bar 100; await 4; echo >&2' "$T/go"
	go 1.0
	t row "[0]<stderr>:$(full 70)"
	go 1.1
	t row "[1]<stderr>:$(full 70)"
	rows_are "[1]<stderr>:$(full 70)"
	go 2.0
	t row '[0]<stdout>:x'
	rows_are '[0]<stdout>:x' "[1]<stderr>:$(full 70)"
	go 3.0
	t row "[0]<stderr>:$(full 100)"
	rows_are '[0]<stdout>:x' "[0]<stderr>:$(full 100)"
	go 2.1
	t row '[1]<stdout>:x'
	go 3.1
	t row "[1]<stderr>:$(full 100)"
	go 4
	t end
	rows_are '[0]<stdout>:x' '[1]<stdout>:x' "[0]<stderr>:$(full 100)" "[1]<stderr>:$(full 100)"
}

@test "a bar is shorter than the one before it: its end is cleared; wider than the terminal: it is one row" {
	terminal -np 1 sh -c "$AWAIT"'printf "\rlong long long" >&2; await 1; printf "\rshort" >&2; await 2
		printf "\r%200s" end >&2; await 3; printf "\r%0200d" 0 >&2; await 4; printf "\rlast\n" >&2' "$T/go"
	t row '[0]<stderr>:long long long'
	go 1
	t row '[0]<stderr>:short'
	go 2
	go 3
	t wait 0000000000
	t rows
	[[ $answer == 'ok ["[0]<stderr>:000000'*'"]' && $answer != *,* ]]
	go 4
	t end
	rows_are '[0]<stderr>:last'
}

@test "the labels: a colour for each rank, stderr reversed; --color never; NO_COLOR; --tag-style short" {
	terminal -np 2 sh -c 'echo o; echo e >&2'
	t end
	styles=
	for row in '[0]<stdout>' '[1]<stdout>' '[0]<stderr>' '[1]<stderr>'; do
		t style "$row"
		styles+="${answer#ok } "
	done
	read -r o0 o0r o1 o1r e0 e0r e1 e1r <<< "$styles"
	[ "$o0$e0" != defaultdefault ]
	[ "$o0 $o1" = "$e0 $e1" ]
	[ "$o0" != "$o1" ]
	[ "$o0r$o1r$e0r$e1r" = FalseFalseTrueTrue ]
	exec 5>&- 6<&-
	for way in 'NO_COLOR=1' 'BERTH_COLOR=never' 'TERM=dumb'; do
		rm "$T/steps" "$T/answers"
		export "${way?}"
		terminal -np 1 --tag-style short echo o
		t end
		rows_are '[0] o'
		t style '[0]'
		[ "$answer" = 'ok default False' ]
		unset NO_COLOR BERTH_COLOR
		exec 5>&- 6<&-
	done
}

@test "a rank's terminal is as wide as runner's without the label, and hears of a new size" {
	terminal -np 2 sh -c "trap 'stty size <&1; exit' WINCH; stty size <&1; while :; do sleep 0.02; done"
	t row '[0]<stdout>:24 68'
	t row '[1]<stdout>:24 68'
	t resize 30 70
	t row '[0]<stdout>:30 58'
	t row '[1]<stdout>:30 58'
	t end
}
