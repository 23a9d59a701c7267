#!/usr/bin/env bats
# limit_s: 300
# takes_s: 21
# shellcheck disable=SC2016,SC2030,SC2031,SC2046,SC2154 # awk's $; pkg-config's words; bats sets output
# libberth as a user has it: what the shared library shows and needs, how it is found and
# installed, berth.h in C and C++, its pages, the examples.  What it computes is tested elsewhere.
load common

LIB=$BUILD/lib/libberth.so
WARN=(-Wall -Wextra -pedantic -Werror)

setup() {
	[ "$(nproc)" != 1 ] || export BERTH_QUIET=1 # ranks that share a core are a warning
	export PKG_CONFIG_PATH=$BUILD/lib/pkgconfig LD_LIBRARY_PATH=$BUILD/lib
	SANITIZED=()
	[ "${SAN:-}" != 1 ] || SANITIZED=("-fsanitize=address,undefined")
	cd "$T" || return
}

# More ranks than cores are worth a warning.
r() {
	timeout -k 5 30 "$RUNNER" "$@" < /dev/null 2> >(grep -v '^runner: warning: .* ranks share .* cores$' >&2)
}

# Without labels.
plain() { sed 's/^\[[0-9]*\]<std[a-z]*>://'; }

# A C or C++ file, with what pkg-config says.
compile() { # COMPILER SOURCE PROGRAM OPTION...
	local compiler=$1 source=$2 program=$3; shift 3
	"$compiler" "${SANITIZED[@]}" "$@" -o "$program" "$source" $(pkg-config --cflags --libs berth) -lm
}

functions() { gcc -E -P "$ROOT/lib/berth.h" | grep -oE '\bberth_[a-z_]+ ?\(' | tr -d ' (' | sort -u; }

# What the library shows, without the name of its version.
shown() { nm -D --defined-only "$LIB" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort; }

# Of the version 0.2.0: 0.2.
minor_version() { pkg-config --modversion berth | cut -d. -f1,2; }

@test "it needs the C library alone" {
	needed=$(readelf -dW "$LIB" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
		grep -vE '^(libc|libm|ld-linux[-a-z0-9_]*|libasan|libubsan)\.so' || true)
	[ "$needed" != libsodium.so.23 ] || skip "there is no libsodium.a here"
	[ -z "$needed" ] || { echo "needed: $needed"; false; }
}

@test "it shows what berth.h declares, and nothing else" {
	[ "$(functions | wc -l)" -ge 33 ]
	diff <(functions) <(shown)
	readelf -dW "$LIB" | grep -qF "[libberth.so.$(minor_version)]"
	run -1 grep -E 'TEXTREL|RPATH|RUNPATH' <(readelf -dW "$LIB")
}

@test "one version: of the programs, the library, its header and pkg-config" {
	version=$(pkg-config --modversion berth)
	[ "$("$RUNNER" --version)" = "runner $version" ]
	cat > v.c <<-'C'
		#include <stdio.h>
		#include <berth.h>
		int main(void)
		{
			printf("%s %d.%d.%d %d\n", berth_version(), BERTH_VERSION_MAJOR, BERTH_VERSION_MINOR,
			       BERTH_VERSION_PATCH, BERTH_VERSION_NUMBER);
			return 0;
		}
	C
	compile cc v.c v
	IFS=. read -r major minor patch <<< "$version"
	run -0 ./v
	[ "$output" = "$version $version $((major * 10000 + minor * 100 + patch))" ]
	grep -q "^BERTH_$major.$minor {" "$ROOT/lib/libberth.map"
}

@test "berth.h: C11 without a warning; every call from C++11, 17 and 20" {
	echo '#include <berth.h>' > c.c
	cc -std=c11 "${WARN[@]}" -Wconversion -Wshadow -Wstrict-prototypes -fsyntax-only $(pkg-config --cflags berth) c.c
	for f in $(functions); do
		grep -qw "$f" "$ROOT/tests/cli/library.cc" || { echo "library.cc: no $f"; false; }
	done
	for std in 11 17 20; do
		compile g++ "$ROOT/tests/cli/library.cc" "cc$std" -std=c++$std "${WARN[@]}"
		run -0 "./cc$std" "$T/timeline"
		[ "$output" = ok ]
	done
	run -0 r -np 3 ./cc20 "$T/timeline"
	[ "$(plain <<< "$output")" = ok ]
	[ -s "$T/timeline.2" ]
}

# library.py's CASE with N ranks.
python() { # N CASE
	[ "${SAN:-}" != 1 ] || skip "a sanitized library cannot be loaded into Python"
	mkdir -p "$T/python.$1"
	run -0 r --no-tag -np "$1" /usr/bin/python3 "$ROOT/tests/cli/library.py" "$LIB" "$T/python.$1" "$2"
}

@test "Python: ctypes: every call that the library shows" {
	for n in 1 2 3; do
		python $n all
		diff <(shown) <(sed -n 's/^called //p' <<< "$output" | tr ' ' '\n')
		[ "$(grep -vc '^called' <<< "$output")" = "$(grep -c '^ok' <<< "$output")" ]
		[ "$(grep -c '^ok' <<< "$output")" -ge 18 ]
	done
}

@test "Python: ctypes: berth_init() by a bootstrap" {
	for n in 2 1; do
		python $n init_by_bootstrap
		[ "$output" = "ok init_by_bootstrap" ]
	done
}

# ---- pages ----

# .Ft and .Fn of PAGE as C.
prototypes() {
	sed -n '/^.Sh SYNOPSIS/,/^.Sh DESC/p' "$1" | awk '
		/^\.Ft / { type = substr($0, 5) }
		/^\.Fn / {
			name = $2; n = split($0, q, "\""); args = n == 1 ? $3 : ""
			for (i = 2; i <= n; i += 2) args = args (i > 2 ? ", " : "") q[i]
			print type " " name "(" args ");"
		}'
}

@test "section 3: every call has a page, with the prototype of berth.h" {
	for page in "$ROOT"/man/berth_*.3; do
		prototypes "$page" > these
		cat these >> all
		diff <(grep -oE 'berth_[a-z_]+\(' these | tr -d '(' | sort) \
			<(sed -n '/^.Sh NAME/,/^.Nd/s/^.Nm \([a-z_]*\).*/\1/p' "$page" | sort) ||
			{ echo "$page: NAME and SYNOPSIS differ"; false; }
	done
	diff <(functions) <(grep -oE 'berth_[a-z_]+\(' all | tr -d '(' | sort)
	{ echo '#include <berth.h>'; cat all; } > all.c
	cc "${WARN[@]}" -fsyntax-only $(pkg-config --cflags berth) all.c
}

@test "section 3: every result, type, operation, kind, level and member is there" {
	pages=$(cat "$ROOT"/man/berth*.3*)
	gcc -E -P "$ROOT/lib/berth.h" > flat.h
	grep -oE '\bBERTH_[A-Z0-9_]+' flat.h | grep -vE '_(TYPES|OPS|KINDS)$' | sort -u > names
	[ "$(wc -l < names)" -ge 45 ]
	while read -r name; do
		grep -qw "$name" <<< "$pages" || { echo "no page has $name"; false; }
	done < names
	/usr/bin/python3 - <(echo "$pages") <<-'P'
		import re, sys
		pages, n = open(sys.argv[1]).read(), 0
		for body in re.findall(r"struct berth_\w+\s*\{([^}]*)\}", open("flat.h").read()):
		    for member in filter(None, (" ".join(m.split()) for m in body.split(";"))):
		        one = [member] if "(" in member else re.split(r", ?", member)
		        one[1:] = [one[0].rsplit(" ", 1)[0] + " " + name for name in one[1:]]
		        n += len(one)
		        for m in one:
		            if f'.It Fa "{m}"' not in pages:
		                sys.exit(f"no page has the member: {m}")
		sys.exit(n < 30)
	P
}

# Literal blocks of PAGE, as functions; those that begin with "static" or "#include" as they are.
snippets() {
	awk '/^\.Bd/ { n++; open = 0; on = 1; next }
		/^\.Ed/ { if (open) print "}"; on = 0; next }
		on && !seen[n]++ { if (!/^(static|#include)/) { print "void f" n "(void)\n{"; open = 1 } }
		on { gsub(/\\e/, "\\"); gsub(/\\-/, "-"); print }' "$1"
}

@test "section 3: what the pages show compiles, and the program of berth(3) runs" {
	for page in "$ROOT"/man/berth_*.3; do
		{
			echo '#include <berth.h>
#include <stdio.h>
enum { LAYERS = 3, RANKS = 4 };
extern float *g, *parameters;
extern size_t n;
extern struct berth_desc layer[LAYERS];
void backward(size_t layer), forward(size_t layer), look_at_signals(void);
int next_batch(void);
typedef struct comm *MPI_Comm;
extern MPI_Comm MPI_COMM_WORLD, communicator;
enum { MPI_BYTE };
int MPI_Comm_rank(MPI_Comm comm, int *rank), MPI_Comm_size(MPI_Comm comm, int *ranks);
int MPI_Allgather(const void *in, int count, int type, void *out, int room, int of, MPI_Comm comm);
int allgather(void *ctx, const void *in, void *out, size_t bytes);'
			snippets "$page"
		} > page.c
		cc -Wall -Wextra -Werror -Wno-unused -c -o page.o $(pkg-config --cflags berth) page.c || { echo "$page"; false; }
	done
	snippets "$ROOT/man/berth.3.in" > berth.c
	compile cc berth.c berth "${WARN[@]}"
	run -0 r -np 4 ./berth
	[ "$(plain <<< "$output" | sort | uniq -c | xargs)" = '4 1.5 1.5' ]
}

@test "berth(3): its variables are those of lib/core/params.def" {
	cd "$ROOT"
	printf '.\\" @parameters@\n.\\" @ignored@\n' | awk -f man/splice.awk > "$T/variables"
	diff <(sed -n '/^\.It Ev /s///p' "$T/variables" | grep -oE '[A-Z][A-Z0-9_]{4,}' | sort) \
		<(sed -nE 's/^(PARAM|IGNORED)\(([A-Z0-9_]+),.*/\2/p' lib/core/params.def | sort)
}

@test "a rank in a network of its own: what it has to keep, though PMIX_RANK is set, too" {
	[ "${SAN:-}" != 1 ] || skip "the sanitizers find leaks of libpmix"
	ldconfig -p | grep -q 'libpmix\.so\.2 ' || skip "no libpmix.so.2 (tests/deps launchers installs it)"
	run -1 env BERTH_AGENT=@berth-gone BERTH_RANK=0 BERTH_SIZE=2 PMIX_RANK=0 PMIX_NAMESPACE=gone \
		PMIX_SERVER_URI41='gone.0;tcp4://127.0.0.1:9' "$BUILD/examples/allreduce"
	says 'keep BERTH_AGENT and BERTH_RANK in its environment, and the network namespace'
	silent_on 'unset PMIX_NAMESPACE'
}

# ---- the installed library ----

@test "install: found by pkg-config alone, also behind DESTDIR; uninstall leaves nothing" {
	[ "${SAN:-}" != 1 ] || skip "the sanitizers' build is not installed"
	umask 002 # of a user whose group is his own; what is installed has none of it
	make -s -C "$ROOT" BUILD="$BUILD" DESTDIR="$T/root" PREFIX=/opt/berth install
	[ -z "$(find "$T/root" -type f ! -perm 644 ! -perm 755)" ]
	for f in include/berth.h lib/libberth.so "lib/libberth.so.$(minor_version)" lib/pkgconfig/berth.pc share/man/man3/berth.3; do
		[ -s "$T/root/opt/berth/$f" ] || { echo "no $f"; false; }
	done
	for f in $(functions); do
		[ -s "$T/root/opt/berth/share/man/man3/$f.3" ] || { echo "no page $f"; false; }
	done
	[ "$(PKG_CONFIG_PATH=$T/root/opt/berth/lib/pkgconfig pkg-config --cflags --libs berth | xargs)" = \
		'-I/opt/berth/include -L/opt/berth/lib -lberth' ]
	export PKG_CONFIG_PATH=$T/root/opt/berth/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$T/root
	compile cc "$ROOT/examples/allreduce.c" ./allreduce "${WARN[@]}"
	LD_LIBRARY_PATH=$T/root/opt/berth/lib run -0 "$T/root/opt/berth/bin/runner" -np 2 ./allreduce < /dev/null
	says 'rank 1 of 2: 1 21 41 61'
	make -s -C "$ROOT" BUILD="$BUILD" DESTDIR="$T/root" PREFIX=/opt/berth uninstall
	[ -z "$(find "$T/root" ! -type d)" ]
}

@test "install: LIBDIR" {
	[ "${SAN:-}" != 1 ] || skip "the sanitizers' build is not installed"
	umask 077
	make -s -C "$ROOT" BUILD="$BUILD" DESTDIR="$T/root" PREFIX=/usr LIBDIR=/usr/lib64 install
	[ -z "$(find "$T/root" -type f ! -perm 644 ! -perm 755)" ]
	[ -s "$T/root/usr/lib64/libberth.so" ]
	[ ! -e "$T/root/usr/lib" ]
	grep -qx libdir=/usr/lib64 "$T/root/usr/lib64/pkgconfig/berth.pc"
	make -s -C "$ROOT" BUILD="$BUILD" DESTDIR="$T/root" PREFIX=/usr LIBDIR=/usr/lib64 uninstall
	[ -z "$(find "$T/root" ! -type d)" ]
}

# ---- the examples ----

@test "examples: built as their first lines say" {
	cp -r "$ROOT"/examples/* .
	for example in *.c; do
		[ "$example" != mpi_hello.c ] || continue # not of the library; cluster/mpi builds it
		line=$(sed -n 's/^ \*  *\(cc .*pkg-config[^*]*\).*/\1/p' "$example")
		[[ $line == *" $example "* ]]
		[ "${SAN:-}" = 1 ] || eval "$line"
	done
	[ "${SAN:-}" = 1 ] || [ -x train_digits ]
}

@test "examples: the sums of allreduce, alone and of four ranks" {
	unset LD_LIBRARY_PATH # they find the library themselves
	run -0 "$BUILD/examples/allreduce"
	[ "$output" = 'rank 0 of 1: 0 10 20 30' ]
	run -0 r -np 4 "$BUILD/examples/allreduce"
	[ "$(plain <<< "$output" | sort)" = "$(for i in 0 1 2 3; do echo "rank $i of 4: 6 46 86 126"; done)" ]
}

@test "examples: train_digits learns, and says the same for 1, 2, 3 and 4 ranks" {
	unset LD_LIBRARY_PATH
	"$BUILD/examples/train_digits" | grep -v ^rank > one
	[ "$(grep -cE '^epoch [0-4] loss [0-9]\.[0-9]{4}$' one)" = 5 ]
	awk '/^accuracy/ { right = $2 > 0.9 } END { exit !right }' one
	for n in 2 3 4; do
		run -0 r -np $n "$BUILD/examples/train_digits"
		diff one <(plain <<< "$output" | grep -v ^rank)
		[ "$(grep -c "rank . of $n on" <<< "$output")" = $n ]
	done
	run -2 "$BUILD/examples/train_digits" 0
	run -2 "$BUILD/examples/train_digits" x
}

@test "examples: the digits are scikit-learn's" {
	table=$(find "$ROOT"/build/venv/lib/python3*/site-packages/sklearn/datasets/data/digits.csv.gz 2> /dev/null || true)
	[ -n "$table" ] || skip "no build/venv (make venv)"
	command=$(sed -n '/^ \*     zcat/,/^ \*.*}. \*\//s/^ \*//p' "$ROOT/examples/data/digits.inc" | sed 's, \*/$,,; s,sklearn/datasets/data/digits.csv.gz,"$table",')
	diff <(eval "$command") <(grep '^"' "$ROOT/examples/data/digits.inc")
}
