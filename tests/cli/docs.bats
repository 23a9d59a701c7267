#!/usr/bin/env bats
# limit_s: 480
# takes_s: 14
# shellcheck disable=SC2016,SC2154 # $ is for the commands' shell; bats sets output
# What README and the man pages show: their commands are taken from the files themselves, run
# in a folder that looks like the tree, and what they print is compared.
load common

# Commands that are not run, and why.
not_run() {
	case $1 in
	'make demo') echo "it installs packages; the run that it ends with is the next command" ;;
	*/proc/PID/*) echo "PID stands for a number" ;;
	'cc '* | *./sum) [ "${SAN:-}" != 1 ] || echo "the library has sanitizers, and they want to be first" ;;
	*venv*) [ -e "$ROOT/build/venv/installed" ] || echo "no build/venv (make venv)" ;;
	esac
}

setup_file() {
	export D=$BATS_FILE_TMPDIR/tree
	mkdir -p "$D/build" "$D/bin"
	ln -s "$BUILD/bin" "$BUILD/examples" "$D/build"
	ln -s "$ROOT/build/venv" "$D/build/venv"
	ln -s "$ROOT/tests" "$ROOT/examples" "$D"
	ln -s /usr/bin/python3 "$D/bin/python"
	printf '#!/bin/sh\n' | tee "$D/train" "$D/server" > "$D/worker"
	chmod +x "$D/train" "$D/server" "$D/worker"
	printf 'import os\nprint("rank", os.environ["RANK"])\n' > "$D/train.py"
	printf 'ip1:8\nip2:8\n' > "$D/hosts.txt"
	section 'In a C program' | sed -n 's/^    //p' | sed -n '/^#include/,/^}/p' > "$D/sum.c"
	PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 - "$D" <<-'P'
		import os, sys
		sys.path.insert(0, os.path.realpath(sys.argv[1] + "/tests/machines"))
		from mkmachine import Grid, on, two_sockets
		open(sys.argv[1] + "/machine.xml", "w").write(two_sockets().xml())
		# two sockets of four cores, and a GPU on each: the picture of runner(1)
		open(sys.argv[1] + "/eight.xml", "w").write(Grid(2, 1, 1, 4).gpus(on("socket", 0, 1)).xml())
	P
}

setup() {
	export PATH=$D/bin:$BUILD/bin:$PATH
	export PKG_CONFIG_PATH=$BUILD/lib/pkgconfig LD_LIBRARY_PATH=$BUILD/lib # as if it were installed
	cd "$D" || return
}

# ---- from the files ----

# FILE's literal text: README's indented lines; what stands between .Bd and .Ed, without roff's
# escapes.  Other lines come out empty.
literal() {
	case $1 in
	*README) sed -E 's/^([^ ].*)?$//; s/^    //' "$1" ;;
	*) awk '/^\.Bd/ { inside = 1; next } /^\.Ed/ { inside = 0 } { print inside ? $0 : "" }' "$1" |
		sed -E 's/\\e/\\/g; s/\\-/-/g; s/\\&//g' ;;
	esac
}

# SECTION of README.
section() {
	awk -v title="$1" '{ if (/^---/) on = last == title; else if (on) print last; last = $0 }
		END { if (on) print last }' "$ROOT/README"
}

# Commands of FILE, as $T/N.command and, where it shows what they print, $T/N.expected.
extract() {
	rm -f "$T"/*.command "$T"/*.expected
	literal "$1" | awk -v to="$T" '
		more { print > file; more = /\\$/; next }
		/^\$ / { n++; file = sprintf("%s/%03d.command", to, n); print substr($0, 3) > file
			more = /\\$/; shown = 1; next }
		/^$/ { shown = 0 }
		shown { print > sprintf("%s/%03d.expected", to, n) }'
}

# ---- running and comparing ----

# A command that names other hosts, as one that asks none of them.
without_hosts() {
	if [[ $1 == runner\ * && $1 =~ ' '(-H|-hostfile|--hostfile|-f)' ' && $1 != *--plan* ]]; then
		echo "runner --plan=json --topology machine.xml${1#runner}"
	else
		echo "$1"
	fi
}

# What does not depend on this machine, of what was printed or is expected; in any order.
substance() {
	sed -E -e "s/\b$(uname -n)\b/ada/g" -e 's/[[:space:]]+$//' \
		-e 's/(loss [0-9]+\.[0-9]{4})[0-9]*/\1/; s/(accuracy [0-9]\.[0-9])[0-9]*/\1/' \
		-e 's/, cpus [0-9,-]+, CUDA_VISIBLE_DEVICES=.*/, cpus .../' \
		-e '/^runner: warning: /d; /^  1 other rank|^  the (other|remaining)/d' "$1" | sort
}

# The hosts of a plan's ranks, as `hostname` would print them.
planned_hosts() {
	/usr/bin/python3 -c 'import json, sys
for r in json.load(sys.stdin)["ranks"]: print("[%d]<stdout>:%s" % (r["rank"], r["host"]))' < "$1"
}

# Run command N of $T in this shell; complain if it is not as the document says.
check_one() {
	local n=$1 said=$T/said expected=$T/$1.expected text run rc why
	text=$(< "$T/$n.command")
	why=$(not_run "$text")
	[ -z "$why" ] || { echo "# not run: $text: $why" >&3; return 0; }
	run=$(without_hosts "$text")
	rc=0
	# shellcheck disable=SC2294 # words of a shell command
	eval "$run" > "$said" 2>&1 < /dev/null || rc=$?
	if [ ! -e "$expected" ]; then
		[[ $text =~ exit\ ([0-9]+) ]] && why=${BASH_REMATCH[1]} || why=0
		[ "$rc" = "$why" ] || { echo "status $rc, not $why: $run"; cat "$said"; return 1; }
		return 0
	fi
	if [ "$run" != "$text" ] && grep -q '^\[0]' "$expected"; then
		planned_hosts "$said" > "$T/hosts"
		said=$T/hosts
	fi
	if grep -q '^runner: ' "$expected"; then
		[ "$rc" != 0 ] || { echo "succeeds: $run"; return 1; }
	else
		[ "$rc" = 0 ] || { echo "status $rc: $run"; cat "$said"; return 1; }
	fi
	diff <(substance "$expected") <(substance "$said") || { echo "^ shown, and printed by: $run"; return 1; }
}

check_all() { # FILE LEAST: it has at least so many commands
	local file n=0 bad=0
	extract "$1"
	for file in "$T"/*.command; do
		n=$((n + 1))
		file=${file##*/}
		check_one "${file%.command}" || bad=$((bad + 1))
	done
	echo "$n commands, $bad are not as shown"
	[ "$bad" = 0 ] && [ "$n" -ge "$2" ]
}

@test "README: every command works and prints what is shown" {
	check_all "$ROOT/README" 21
}

@test "runner(1): every command works" {
	check_all "$ROOT/man/runner.1.in" 11
}

@test "berth-agent(8): every command works, and its options are those of --help" {
	check_all "$ROOT/man/berth-agent.8" 1
	diff <("$AGENT" --help | grep -oE '^ .*berth-agent +--[a-z]+' | grep -oE '[a-z]+$' | sort) \
		<(sed -n '/^.Sh SYNOPSIS/,/^.Sh DESC/s/^\.Fl \\-\([a-z]*\).*/\1/p' "$ROOT/man/berth-agent.8" | sort)
}

# A command with the tool it is for replaced: what would run where, inside a job of two hosts if it
# names none.
plan_of() {
	local inside=
	[[ $1 == *ip1* || $1 == *hosts.txt* ]] || inside="env SLURM_JOB_ID=1 SLURM_JOB_NODELIST='ip[1-2]' SLURM_NTASKS=16 SLURM_TASKS_PER_NODE='8(x2)'"
	eval "$inside runner --plan=json --topology machine.xml ${1#* }"
}

@test "README: commands of other launchers mean the same to runner" {
	section 'Coming from another launcher' | sed -n 's/^    //p' > "$T/pairs"
	[ "$(wc -l < "$T/pairs")" -ge 10 ]
	while read -r theirs && read -r ours; do
		[[ $ours == 'runner '* ]] || { echo "no pair: $theirs / $ours"; return 1; }
		plan_of "$ours" > "$T/ours"
		grep -q '"np": 16' "$T/ours"
		case $theirs in
		mpirun\ * | mpiexec\ * | horovodrun\ *)
			plan_of "$theirs" > "$T/theirs"
			diff "$T/theirs" "$T/ours" || { echo "$theirs differs"; return 1; } ;;
		*) echo "# not run: ${theirs%% *}: an option of its own for each of ours" >&3 ;;
		esac
	done < "$T/pairs"
}

@test "README: the messages shown are those of common/errors.def" {
	section 'When it goes wrong' > "$T/text"
	/usr/bin/python3 - "$ROOT/common/errors.def" "$T/text" <<-'P'
		import re, sys
		rows = re.findall(r'^ERR\(\w+, \w+, "((?:[^"\\]|\\.)*)",\s*"((?:[^"\\]|\\.)*)"', open(sys.argv[1]).read(), re.M)
		shape = lambda s: re.sub(r"%(?:\\\.\\\*)?[a-z]+", ".+", re.escape(s).replace(r"\%", "%"))
		lines = open(sys.argv[2]).read().splitlines()
		shown = 0
		for before, line, after in zip([""] + lines, lines, lines[1:]):
		    if not line.startswith("    runner: ") or before.startswith("    $ "):
		        continue
		    shown += 1
		    if not any(re.fullmatch("(warning: )?([a-z0-9]+: )?" + shape(text), line[12:]) and after == "    hint: " + hint for text, hint in rows):
		        sys.exit(f"no such message: {line}\n{after}")
		sys.exit(shown < 3)
	P
}

@test "README: the packages are those of tests/packages" {
	for column in 2 3; do
		diff <(section Install | sed -nE "${column}s/^[A-Z][a-z 0-9]+: +//p" | tr ' ' '\n' | sort) \
			<(awk -v c=$column '$1 == "build" { print $c }' "$ROOT/tests/packages" | sort)
	done
}

@test "README: the training script runs" {
	[ -e "$ROOT/build/venv/installed" ] || skip "no build/venv (make venv)"
	section 'In a training script' | sed -n '/^    import jax$/q; s/^    \([^$]\)/\1/p; s/^$//p' > "$T/script.py"
	run -0 runner -np 2 build/venv/bin/python3 "$T/script.py"
	says '[0]<stdout>:rank 0 of 2 is ready' '[1]<stdout>:rank 1 of 2 is ready'
}

# A jax that shows what it would find: the real one is large (jax.bats).
@test "README and runner(1): JAX finds its ranks without arguments" {
	mkdir "$T/jax"
	cat > "$T/jax/__init__.py" <<-'P'
		import os
		class distributed:
		    def initialize():
		        env = os.environ
		        host, port = env["JAX_COORDINATOR_ADDRESS"].rsplit(":", 1)
		        assert env["OMPI_MCA_orte_hnp_uri"] == ""
		        print("at", host, int(port) > 0, env["OMPI_COMM_WORLD_SIZE"], env["OMPI_COMM_WORLD_RANK"])
	P
	section 'In a training script' | sed -n '/^    import jax$/,/initialize/s/^    \([^$]\)/\1/p' > "$T/readme.py"
	literal "$ROOT/man/runner.1.in" | sed -n '/^import jax/,/initialize/p' > "$T/page.py"
	diff <(grep . "$T/readme.py") <(grep . "$T/page.py")
	run -0 env PYTHONPATH="$T" "$RUNNER" -q -np 2 --no-tag /usr/bin/python3 "$T/page.py"
	[ "$(sort <<< "$output")" = $'at 127.0.0.1 True 2 0\nat 127.0.0.1 True 2 1' ]
	run -0 env PYTHONPATH="$T" "$RUNNER" -np 1 --no-tag -x MASTER_ADDR=fd00:77::11 /usr/bin/python3 "$T/page.py"
	[ "$output" = 'at [fd00:77::11] True 1 0' ]
	run -0 "$RUNNER" --plan -np 2 --topology machine.xml python3 "$T/page.py"
	says "gpu-visible: one"
}

@test "--help slow, --help hang: timelines are joined, and Python prints its stacks" {
	join=$(runner --help slow | tr -s ' \n' ' ' | grep -o 'jq -s add .* > all.json')
	if command -v jq > /dev/null && [ "${SAN:-}" != 1 ]; then
		(cd "$T" && run -0 runner -np 2 -x HOROVOD_TIMELINE="$T/t.json" "$BUILD/examples/train_digits" && eval "$join")
		/usr/bin/python3 -c 'import json, sys
e = json.load(open(sys.argv[1]))
assert {v["pid"] for v in e if v["ph"] == "X"} == {0, 1}, e' "$T/all.json"
	else
		echo "# not run: $join: no jq" >&3
	fi
	printf 'import os\ndef deep():\n    os.kill(os.getpid(), %s)\ndeep()\n' 6 > "$T/hangs.py"
	run -134 runner -np 1 sh -c "ulimit -c 0; exec python $T/hangs.py"
	says 'hangs.py", line 3 in deep'
}

# Lines "-np 2   a a . .   b b . .": which cores each rank has.
@test "runner(1): the picture of binding is what --plan says" {
	literal "$ROOT/man/runner.1.in" | grep -E '^-np .*([a-d.*] ){3}' > "$T/picture"
	[ "$(wc -l < "$T/picture")" -ge 7 ]
	cat > "$T/compare.py" <<-'P'
		import json, sys
		got = ["."] * 8
		for r in json.load(sys.stdin)["ranks"]:
		    for part in r["cpus"].split(","):
		        first, _, last = part.partition("-")
		        for c in range(int(first), int(last or first) + 1):
		            got[c] = "abcd"[r["rank"]] if got[c] == "." else "*"
		sys.exit(f"{sys.argv[1:]}: really {got}" if got != sys.argv[-8:] else 0)
	P
	while read -ra word; do
		runner --plan=json "${word[@]:0:${#word[@]}-8}" --topology eight.xml 2> /dev/null |
			/usr/bin/python3 "$T/compare.py" "${word[@]}"
	done < "$T/picture"
}

@test "runner(1): the variables of ranks are the rows of common/given.def" {
	cd "$ROOT"
	echo '.\" @given@' | awk -v runner="$RUNNER" -f man/splice.awk > "$T/given"
	diff <(sed -n 's/^\.It Ev \([A-Za-z_]*\)$/\1/p' "$T/given" | sort) \
		<(sed -n 's/^GIVEN("\([A-Za-z_]*\)".*/\1/p' common/given.def | sort)
	awk '/^\.It/ { getline value; getline readers
		if (value !~ /[a-z0-9]/ || readers !~ /^\.Pq ./) { print; bad = 1 } } END { exit bad }' "$T/given"
}

# Behind each Ta stands a mark, which nothing but a blank may precede.
@test "man pages: 78, 80 and 100 columns: groff warns of nothing, and no columns touch" {
	command -v groff > /dev/null || skip 'no groff (tests/deps check)'
	pages=("$ROOT"/man/*.[1-8] "$BUILD"/man/*.[1-8])
	[ ${#pages[@]} -ge 14 ]
	for page in "${pages[@]}"; do
		for width in 78 80 100; do
			run -0 --separate-stderr groff -mandoc -Tutf8 -ww -P-cbou "-rLL=${width}n" <(sed 's/ Ta / Ta @ /g' "$page")
			if [ -n "$stderr" ] || grep '[^ ]@ ' <<< "$output"; then
				echo "$page at $width columns: $stderr"
				false
			fi
		done
	done
}

@test "--help environment: the variables of ranks, and the values that they have by default" {
	"$RUNNER" --help environment | sed -n '/^Ranks get/,$p' > "$T/help"
	# words of capitals that are no value
	diff <(sed '/^[A-Z]/d; s/=[^,]*//g' "$T/help" | grep -oE '[A-Z][A-Z]+(_[A-Za-z_]+)?' | sort -u) \
		<(sed -n '/VALUE(never)/!s/^GIVEN("\([A-Za-z_]*\)".*/\1/p' "$ROOT/common/given.def" | sort -u)
	n=0
	while IFS='=' read -r name value; do
		run -0 env -u "$name" "$RUNNER" --no-tag -np 1 --stdin none printenv "$name" < /dev/null
		[ "$output" = "$value" ]
		n=$((n + 1))
	done < <(sed '/^To change/,$d' "$T/help" | grep -oE '[A-Z][A-Z_]*=[A-Za-z0-9_]+')
	[ "$n" = 5 ]
}

# The page as the Makefile makes it.
made() { # PLACEHOLDER
	(cd "$ROOT" && echo ".\\\" @$1@" | awk -v runner="$RUNNER" -f man/splice.awk)
}

@test "runner(1): what the placeholders become" {
	forms=$(grep -oE '^\.\\" @[a-z]+@$' "$ROOT/man/runner.1.in" | tr -dc 'a-z\n' | sort | tr '\n' ' ')
	[ "$forms" = "advice compat environment errors exits given man " ]
	run -0 made advice
	[[ $output == *$'.Ss If a job hangs\n.Bl -tag -width Ds\n.It "Ctrl-\\e, or kill \\-QUIT PID"\nPress '* ]]
	[ "$(grep -c '^\.Ss' <<< "$output") $(grep -c '^\.El' <<< "$output")" = '2 2' ]
	run -0 made environment
	[[ $output == *$'.It Ev BERTH_NP\nAs\n.Fl np .\n'* ]]
	run -0 made exits
	[[ $output == *$'.It 241\na host or its agent was lost'* ]]
	run -0 made errors
	says ".It \"\\&'...' is not a number from N to N\""
	[[ $output == *".It \"unknown option \\&'...'\""$'\nlist the options with `runner \\-\\-help all`'* ]]
	run -0 made compat
	[[ $output == *$'.It Fl \\-allow\\-run\\-as\\-root\nOpen MPI, ignored: root'* ]]
	run -0 made man
	says '.It Fl np Ar N , Fl n Ar N , Fl \-num\-proc Ar N' '.Pq Cm map-by , Ev BERTH_MAP_BY' \
		'.It Fl \-plan Ns Oo = Ns Ar json|svg|png Oc , '
	[ "$(grep -c '^\.Ss' <<< "$output")" = "$(grep -c '^\.El' <<< "$output")" ]
	run -1 made nothing
	says 'nothing for @nothing@'
}
