#!/bin/bash
# scale.sh [N...]: jobs on N cluster hosts (64 and 256): start, run, end; then one host of them slow,
# refusing, frozen, off, with a wrong or an unknown key, a full disk, an agent of another version; then
# several at once.  A row each: status, lines said, time, what was left.  Exit status: rows that are wrong.
# shellcheck disable=SC2154 # scale_run sets status and took_ms
set -u
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=${BUILD:-$ROOT/build}
case $BUILD in /*) ;; *) BUILD=$ROOT/$BUILD ;; esac
export VC_NAME=${VC_NAME:-soakscale}
VCLUSTER=$ROOT/tests/cluster/vcluster
. "$ROOT/tests/cluster/scale.bash"
unset "${!BERTH_@}"

if [ "$(id -u)" != 0 ] || ! unshare --mount --net --pid true 2> /dev/null; then
	echo "skipped: this machine or user makes no namespaces, so no cluster"
	exit 0
fi
trap '"$VCLUSTER" down > /dev/null 2>&1' EXIT
trap 'exit 130' INT TERM
wrong=0

# A row for the run that was; wrong unless STATUS, and LINES on stderr of which one each has TEXT.
row() { # WHAT STATUS LINES TEXT...
	local what=$1 want=$2 lines said verdict=ok text left
	lines=$(wc -l < "$SCALE/err")
	[ "$status" = "$want" ] && [ "$lines" = "$3" ] || verdict=WRONG
	shift 3
	for text; do
		grep -qF -- "$text" "$SCALE/err" || { verdict=WRONG; said=$text; }
	done
	left=$(nothing_left | wc -l)
	[ "$left" = 0 ] || verdict=WRONG
	printf '%-5s %-28s %4s %6s %8s ms %5s\n' $verdict "$what" "$status" "$lines" "$took_ms" "$left"
	[ $verdict = ok ] || {
		wrong=$((wrong + 1))
		echo "  not said: ${said-}"
		sed 's/^/  | /' "$SCALE/err"
	}
}

memory() {
	local kib limit verdict=ok
	kib=$(peak_kib) limit=$(memory_limit_mib)
	if [ "${kib:-0}" = 0 ] || [ "$kib" -ge $((limit * 1024)) ]; then
		verdict=WRONG wrong=$((wrong + 1))
	fi
	printf '%-5s %-28s %s KiB of %s MiB\n' $verdict "runner's memory" "$kib" "$limit"
}

whole() { # 1 KiB from each rank and nothing else
	[ "$(wc -c < "$SCALE/out")" = $((SCALE_N * 1024)) ] || {
		echo "  $(wc -c < "$SCALE/out") bytes of output, not $((SCALE_N * 1024))"
		wrong=$((wrong + 1))
	}
}

several() { # more of one kind than the name of one host
	local h
	for h in n3 n4 n7; do break_host refusing $h; done
	for h in n5 n9; do break_host wrong_key $h; done
	# shellcheck disable=SC2046 # words
	scale_run $(options_of refusing) true
	row "3 refuse, 2 wrong keys" 240 4 'root@n[3-4,7]:22: cannot connect' 'root@n[5,9]:22: its host key is not the one'
	for h in n3 n4 n7; do mend_host refusing $h; done
	mend_host wrong_key n5
}

[ $# -gt 0 ] || set -- 64 256
for n; do
	"$VCLUSTER" up "$n" && scale_setup "$n" || exit 1
	printf '\n%-5s %-28s %4s %6s %11s %5s\n' '' "$n hosts" status lines time left
	row "true" 0 0
	scale_run --no-tag sh -c 'head -c 1023 /dev/zero | tr "\0" x; echo'
	row "1 KiB from each" 0 0
	whole
	memory
	victim=n$((n * 2 / 3))
	for kind in $SCALE_KINDS; do
		break_host "$kind" $victim
		# shellcheck disable=SC2046 # words
		scale_run $(options_of "$kind") true
		if [ "$kind" = slow ]; then row "$kind" 0 0
		else row "$kind" 240 2 "root@$victim:22: " "$(said_of "$kind")"; fi
		mend_host "$kind" $victim
	done
	several
	scale_run true
	row "all mended" 0 0
	"$VCLUSTER" down
done
[ $wrong = 0 ] || echo "$wrong rows are wrong"
exit $((wrong > 125 ? 125 : wrong))
