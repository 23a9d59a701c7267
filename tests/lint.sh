#!/bin/bash
# lint.sh [CHECK...]: the style that a machine can check; `make lint` runs all.
#
# Each function check_X below is one check, and prints what is wrong, a line each; a line that
# begins with "warning: " does not fail it.  Written for the tools of Debian 12.
set -u
cd "$(dirname "$0")/.." || exit
shopt -s nullglob
export LC_ALL=C.UTF-8
build=${BUILD:-build}
dialect=(-std=c11 -D_GNU_SOURCE -I. -I"$build")
programs=(common/*.[ch] {launcher,agent}/*.[ch] {launcher,agent}/*/*.[ch] lib/*.[ch] lib/*/*.[ch] lib/*/*.cc contrib/*/*.[ch])
tests=(tests/*/*.[ch] tests/*/*/*.[ch] examples/*.c)
defs=(common/*.def launcher/*.def agent/*.def lib/*/*.def)
shell=(.ci/run tests/run tests/deps)
mapfile -t more_shell < <(grep -lE '^#!/bin/(ba)?sh' tests/*.sh tests/*/* contrib/*/* examples/* 2> /dev/null)
shell+=("${more_shell[@]}" tests/*/*.bash tests/*/*.bats)

# Each line of stdin, and what is wrong with it.
tag() {
	local line
	while IFS= read -r line; do
		printf '%s  <- %s\n' "$line" "$1"
	done
}

# ---- layout and tools ----

check_format() {
	local f
	for f in "${programs[@]}" "${tests[@]}"; do
		clang-format "$f" | cmp -s - "$f" || echo "$f: not as clang-format lays it out (make format)"
	done
}

# What clang-format can't break, tables that it is kept from apart, and blanks at line ends.  A
# tab is 8 columns.
check_columns() {
	local f
	for f in "${programs[@]}" "${tests[@]}"; do
		expand "$f" | awk -v f="$f" '
			/clang-format off/ { off = 1 }
			/clang-format on/ { off = 0 }
			!off && length($0) > 88 { n++; if (n == 1) first = NR }
			END { if (n) print f ":" first ": more than 88 columns, as are " n - 1 " other lines" }'
	done
	grep -nE '[ 	]+$' "${programs[@]}" "${tests[@]}" "${defs[@]}" "${shell[@]}" | tag 'blanks at the end'
}

# Files here; clang-tidy counts the lines of functions.
check_size() {
	wc -l "${programs[@]}" "${tests[@]}" | awk '$2 != "total" && $1 > 1000 { print "warning: " $2 ": " $1 " lines, files stop near 1000" }'
}

check_tidy() {
	printf '%s\n' {common,launcher,agent}/*.c {launcher,agent,lib}/*/*.c | xargs -P "$(nproc)" -I{} \
		clang-tidy --quiet {} -- "${dialect[@]}" 2> /dev/null |
		sed -n "s,^$PWD/,,; s/^\([^ ]*: \)error: /\1/p; s/^\([^ ]*: \)warning: /warning: \1/p"
}

check_cppcheck() {
	# unknownMacro, internalAstError: cppcheck does not follow the tables' X() and MSG()
	cppcheck -q --std=c11 --language=c --enable=warning,performance,portability --inline-suppr \
		--suppress=unknownMacro --suppress=internalAstError --suppress=missingIncludeSystem --suppress=preprocessorErrorDirective \
		-D_GNU_SOURCE -I. --template='{file}:{line}: {id}: {message}' -j "$(nproc)" \
		common launcher agent lib 2>&1
}

check_shell() {
	shellcheck -x -P SCRIPTDIR -f gcc "${shell[@]}"
}

# Placeholders are comments to mandoc, so the .in files can be read as they are.
check_man() {
	local pages=(man/*.[1-8] "$build"/man/*)
	[ ${#pages[@]} = 0 ] || mandoc -T lint -W warning "${pages[@]}"
}

# Also, each public function and class of the package has a docstring, and nothing that is public has the
# type Any.
check_python() {
	/usr/bin/python3 -c '
import ast, sys

def public(body):
    for part in body:
        names = [getattr(t, "id", "") for t in getattr(part, "targets", [getattr(part, "target", part)])]
        name = getattr(part, "name", names[0])
        if name.startswith("_") and not name.startswith("__"):
            continue
        if isinstance(part, ast.ClassDef):
            yield from public(part.body)
        elif isinstance(part, ast.FunctionDef):
            yield name, (part.args, part.returns)
        elif isinstance(part, (ast.Assign, ast.AnnAssign)):
            yield name, (part.value, getattr(part, "annotation", None))

def is_any(node):
    return "Any" in (getattr(node, "id", ""), getattr(node, "attr", ""))

for name in sys.argv[1:]:
    text = open(name).read()
    tree = ast.parse(text, name)
    kinds = ast.Module, ast.FunctionDef, ast.ClassDef
    for part in [tree, *tree.body] if name.startswith("lib/python/berth/") else []:
        label = getattr(part, "name", "the module")
        if isinstance(part, kinds) and not label.startswith("_") and not ast.get_docstring(part):
            print(f"{name}: {label} has no docstring")
    for label, parts in public(tree.body) if name.startswith("lib/python/berth/") else []:
        if any(is_any(node) for part in parts if part for node in ast.walk(part)):
            print(f"{name}: {label}: Any is no type for users")
    for n, line in enumerate(text.splitlines(), 1):
        if len(line) > 110:
            print(f"{name}:{n}: {len(line)} columns, 110 are the most")
' examples/*.py tests/*/*.py lib/python/*/*.py lib/python/*/*/*.py lib/python/berth/*/*/*.py man/*.py
}

# The package of Python, with the torch of build/venv.
check_types() {
	command -v mypy > /dev/null || { echo "warning: no mypy (tests/deps lint), so types were not checked"; return; }
	[ -e build/venv/installed ] || { echo "warning: no build/venv (make venv), so types were not checked"; return; }
	(cd lib/python && mypy --python-executable ../../build/venv/bin/python3 --cache-dir ../../build/mypy berth 2>&1) |
		grep -vE '^(Success|Found)|: note: '
}

# `make check` ends within 6 minutes on 2 idle cores.  Each suite takes takes_s of its head (1 if that
# says nothing).  tests/run has 7 side by side, which are as fast as 6 would be if no core were
# shared, then those that want to be alone; what it builds before takes 30 s.
check_time() {
	awk '
	FNR == 1 { take(); seconds = 1; alone = left = 0 }
	FNR > 15 { next }
	match($0, /takes_s: *[0-9]+/) { seconds = substr($0, RSTART + 8, RLENGTH - 8) + 0 }
	/^[ \/*#]*alone: ./ { alone = 1 }
	/^[ \/*#]*all: ./ { left = 1 }
	function take() { if (!left) { if (alone) one += seconds; else beside += seconds } }
	END {
		take()
		all = 30 + beside / 6 + one
		if (all > 360) printf "make check takes %d s, more than 360: 30 + %d/6 + %d: say \"all: WHY\" in a suite\n", all, beside, one
	}' tests/unit/test_*.c tests/fuzz/fuzz_*.c tests/*/*.test tests/*/*.bats
}

# ---- who may include whom ----

# The laws of the rooms of launcher/, agent/ and common/ stand in CONTRIBUTING.
check_rooms() {
	make -s -k "$build/bin/runner" "$build/bin/berth-agent" "$build/lib/libberth.so" > /dev/null 2>&1
	tests/rooms.py laws "$build"
}

# Files of a program that take symbols from one another.
check_circles() {
	make -s -k "$build/bin/runner" "$build/bin/berth-agent" "$build/lib/libberth.so" > /dev/null 2>&1
	tests/rooms.py circles "$build"
}

# Files that need the types of one another, and structs that nobody can take in at a glance.
check_uses() {
	command -v clang > /dev/null || { echo "warning: no clang (tests/deps lint), so uses of types were not checked"; return; }
	tests/uses.py lint
}

# In gdb, perf and a backtrace a static function is its name.
check_names() {
	tests/rooms.py names
}

# Unit tests have the name of what they test.
check_suites() {
	tests/rooms.py suites
}

# A function of at most 12 lines with one caller is read faster in its place, unless its name says more
# than its lines.  Their number only falls.
check_small() {
	local most=193 n
	n=$(tests/rooms.py small)
	[ "$n" -le "$most" ] || echo "$n static functions of at most 12 lines have one caller: $most are the most"
}

# FROM allows: the quoted includes that the files of other folders may have.  HEADER allows:
# the files that may include it.
check_includes() {
	local from header allow
	while read -r from allow; do
		grep -nE '^ *# *include "' "$from"/*.[ch] /dev/null | grep -vE "# *include \"($allow)\"" |
			tag "not for $from/"
	done <<-'E'
		contrib/slurm (common/(exits|job)\.h|contrib/slurm/[a-z0-9_]+\.h)
	E
	while read -r header allow; do
		grep -lE "^ *# *include <$header" "${programs[@]}" contrib/*/*.[ch] /dev/null |
			grep -vE "^($allow)\$" | tag "includes <$header>, only ${allow//\\/} may"
	done <<-'E'
		hwloc agent/placement/topo\.c
		libssh launcher/transport/(ssh|libssh)[a-z_]*\.[ch]
		pmix agent/pmi/pmix[a-z_]*\.c
		event2 ((launcher|agent)/.*|common/loop\.c)
		sodium ((launcher|agent|lib)/.*|common/key\.[ch])
		zlib launcher/trace/trace_(file|read)\.c
		check\.h tests/.*
		slurm contrib/slurm/.*
	E
}

# common/ is for what both programs need: directly, or through another header of common/.
check_both_users() {
	local who h new
	[ -e launcher/main.c ] && [ -e agent/main.c ] || return
	for who in launcher agent; do
		local seen=" " next
		next=$(grep -hoE '"common/[a-z_]+\.(h|def)"' $who/*.[ch] $who/*/*.[ch] | tr -d '"' | sort -u)
		while [ -n "$next" ]; do
			new=
			for h in $next; do
				[[ $seen == *" $h "* ]] && continue
				seen+="$h "
				new+=" $(grep -hoE '"common/[a-z_]+\.(h|def)"' "$h" "${h%.h}.c" 2> /dev/null | tr -d '"')"
			done
			next=$new
		done
		for h in common/*.h common/*.def; do
			[[ $seen == *" $h "* ]] || echo "$h: nothing in $who/ includes it; common/ is for what both programs use"
		done
	done
}

check_lone_headers() {
	local h
	for h in {common,launcher,agent,lib}/*.h {launcher,agent,lib}/*/*.h; do
		echo "#include \"$h\"" | gcc "${dialect[@]}" -fsyntax-only -Wall -Wextra -xc - 2>&1 |
			grep -m 1 -E 'error|warning' | tag "$h alone"
	done
}

# No test builds the benches.  fence.c needs the headers of a peer.
check_benches() {
	local f kind
	for f in tests/bench/*.c; do
		for kind in "" -DWHOLE; do
			[ "$f" = tests/bench/fence.c ] || gcc "${dialect[@]}" -fsyntax-only -Wall $kind "$f" 2>&1 |
				grep -m 1 -E 'error|warning' | tag "$f $kind"
		done
	done
}

# ---- words ----

# The compiler refuses these where common/err.h is included; this finds the files without it.
check_banned() {
	grep -nwE '(strcpy|strcat|sprintf|vsprintf|strtok|ato[il]|atoll|system|popen|gets) ?\(' "${programs[@]}" |
		grep -vE '^common/banned\.h|^[^:]*:[0-9]*: ?\*|/\*' | tag banned
}

# Words that the project used for what the field has terms for (CONTRIBUTING, Words).
old_words='fleets?|broom|whereabouts|cookies?|muster|roll-calls?|sshpool|sshcmd|sshconf|gpuwatch|joinings|whoever|knobs?|fruitless|life pipes?'

check_words() {
	grep -nwE 'TODO|FIXME|XXX' "${programs[@]}" "${tests[@]}" "${defs[@]}" examples/* man/* README CONTRIBUTING Makefile 2> /dev/null
	grep -nE 'RUNNER_[A-Z]' "${programs[@]}" | tag 'variables of ours begin with BERTH_'
	git ls-files | grep -vE 'corpus/|^tests/lint\.sh|^tests/golden/|\.json$|^examples/data' |
		xargs grep -niE "(^|[^a-z])($old_words)([^a-z]|\$)" 2> /dev/null | grep -v idiag_cookie | # the kernel's
		tag 'an old word: see Words in CONTRIBUTING'
	check_first_words
}

# A comment begins with its actor, or with a verb: "Who waits ..." has to be read twice.
check_first_words() {
	grep -nE '/\* ?(Who|What|Which|Of|The same)\b' lib/*.h {lib,launcher,agent,contrib}/*/*.[ch] {launcher,agent,common}/*.[ch] \
		{lib,common}/*.def lib/*/*.def 2> /dev/null | tag 'a comment begins with its actor'
}

# Every error has a test that triggers it: one that names it, as unit tests do, or the one that a
# row of tests/errors.tsv names.  Every row has an error and a test.
check_errors() {
	local id file name
	mapfile -t ids < <(sed -n 's/^ERR(\([A-Z_0-9]*\),.*/\1/p' common/errors.def)
	for id in "${ids[@]}"; do
		grep -qE "^$id	" tests/errors.tsv || grep -qw "$id" tests/*/*.c tests/*/*.bats ||
			echo "common/errors.def: $id: no test names it, nor does tests/errors.tsv name one"
		grep -rqw "$id" --include='*.[ch]' common launcher agent || echo "common/errors.def: $id is used nowhere"
	done
	while IFS=$'\t' read -r id file name; do
		[[ $id == E_* ]] || continue
		[[ " ${ids[*]} " == *" $id "* ]] || echo "tests/errors.tsv: $id is no error"
		if [ ! -e "$file" ]; then
			echo "tests/errors.tsv: $id: no file '$file'"
		elif ! grep -qF -- "$name" "$file"; then
			echo "tests/errors.tsv: $id: no test '$name' in $file"
		fi
	done < tests/errors.tsv
}

# Every name in a row of the option table that isn't hidden is in the man page and the completion,
# its first name in --help all; and those name nothing else.
check_options() {
	[ -x "$build/bin/runner" ] || { echo "warning: no $build/bin/runner, so options were not compared"; return; }
	local table first help man completion
	table=$(awk '
		function row_ends() { if (row && row !~ /OPTION_HIDDEN/) { split(row, part, "\""); print part[2] } row = "" }
		/^\t\{ "-/ { row_ends() }
		/^\t\{ "-/ || row { row = row $0 }
		/^};/ { row_ends() }' launcher/cli/option_table.c)
	first=$(awk '{ print $1 }' <<< "$table" | sort -u)
	table=$(tr ' ' '\n' <<< "$table" | sort -u)
	help=$("$build/bin/runner" --help all | sed -nE 's/^  (-[^ ,[]*)(, (-[^ []*))?.*/\1\n\3/p' | grep . | sort -u)
	man=$(sed -n '/^\.Sh OPTIONS/,/^\.Sh MAPPING/s/^\.It //p' "$build/man/runner.1" | sed 's/ , /\n/g' |
		sed -nE 's/^Fl ([^ ]*).*/-\1/p' | sed 's/\\-/-/g' | sort -u)
	completion=$(tr -s ' \t"()|;' '\n' < "$build/completion/runner" | grep -E '^--?[A-Za-z]' | sort -u)
	without() { comm -23 <(echo "$1") <(echo "$2"); }
	without "$first" "$help" | tag "in the option table, not in --help all"
	without "$help" "$table" | tag "in --help all, not in the option table"
	without "$table" "$man" | tag "in the option table, not in the man page"
	without "$man" "$table" | tag "in the man page, not in the option table"
	without "$table" "$completion" | tag "in the option table, not in the completion"
}

# No name is two of: a variable that sets an option, one that ranks are given, one that the
# library reads.  Those that ranks get are never read as options.  A variable that a source names
# stands in one of the tables, so that runner knows it.
check_variables() {
	[ -x "$build/bin/runner" ] && [ -e common/given.def ] || return
	local option given knob rest
	option=$("$build/bin/runner" --print=tables | awk -F'\t' '$1 == "option" && $6 { print $6 }' | sort -u)
	given=$(sed -nE 's/^GIVEN\("([A-Z][A-Z0-9_]*)".*/\1/p' common/given.def | sort -u)
	knob=$(sed -nE 's/^(PARAM|IGNORED)\(([A-Z][A-Z0-9_]*),.*/\2/p' lib/core/params.def | sort)
	rest=$(sed -nE 's/^VARIABLE\("(\w+)"\).*/\1/p' launcher/cli/variables.def | sort)
	[ -n "$option" ] && [ -n "$given" ] && [ -n "$knob" ] && [ -n "$rest" ] || echo "no names found"
	{
		grep -rhoE "[\"']BERTH_[A-Z0-9_]+[\"'=]" --include=*.{c,h,py} common launcher agent lib contrib examples bench
		grep -rhoE '\$\{?BERTH_[A-Z0-9_]+' contrib examples
		sed -nE 's/^\.(Ev|It Ev) (BERTH_[A-Z0-9_]+).*/\2/p' man/*
	} | grep -oE 'BERTH_[A-Z0-9_]*[A-Z0-9]' | sort -u | comm -23 - <(sort -u <<< "$option"$'\n'"$given"$'\n'"$knob"$'\n'"$rest") |
		sed 's/$/: is named in a source, and stands in no table of variables/'
	sort <<< "$(sort -u <<< "$option"$'\n'"$given"$'\n'"$knob")"$'\n'"$rest" | uniq -d | sed 's/$/: is in variables.def and in another table/'
	comm -12 <(echo "$option") <(echo "$given") | sed 's/$/: sets an option and is given to ranks/'
	comm -12 <(echo "$option") <(uniq <<< "$knob") | sed 's/$/: sets an option and is in knobs.def/'
	comm -12 <(echo "$given") <(uniq <<< "$knob") | sed 's/$/: is given to ranks and is in knobs.def/'
	uniq -d <<< "$knob" | sed 's/$/: is in knobs.def twice/'
}

# ---- all ----

failed=()
[ $# -gt 0 ] || set -- format columns size rooms circles uses names small suites includes both_users lone_headers benches banned words errors options \
	variables shell man python types time cppcheck tidy
if [[ " $* " =~ ' man '|' options ' ]]; then
	make -s docs > /dev/null 2>&1
fi
for check; do
	said=$("check_$check" 2>&1)
	[ -z "$said" ] || printf '%s\n' "$said" | sed "s/^/$check: /"
	if [ -n "$said" ] && grep -qv '^warning: ' <<< "$said"; then
		failed+=("$check")
	fi
done
if [ ${#failed[@]} -gt 0 ]; then
	echo "lint: failed: ${failed[*]}" >&2
	exit 1
fi
echo "lint: nothing to say against $# checks"
