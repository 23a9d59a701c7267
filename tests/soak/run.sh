#!/bin/bash
# run.sh: the long tests, one after the other; `make soak`.  All tests/soak/*.sh, which print a
# small table each, then the chaos runner: CHAOS_S seconds (1800) on CHAOS_HOSTS hosts (4), with
# seed SEED (the day).  SOAK_ONLY="faults chaos" picks some.  Words go to build/soak/NAME.log;
# at the end come all tables, and a line for each.
set -u
cd "$(dirname "$0")/../.." || exit
export BUILD=${BUILD:-$PWD/build} VC_NAME=${VC_NAME:-soak$$} LC_ALL=C.UTF-8
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
export PATH=$BUILD/bin:$PATH SEED=${SEED:-$(date +%Y%m%d)}
unset "${!BERTH_@}"
logs=$BUILD/soak
failed=0 lines=()

program() { # NAME
	case $1 in
	chaos) HOSTS=${CHAOS_HOSTS:-4} tests/cluster/chaos.sh "${CHAOS_S:-1800}" "$SEED" ;;
	*) "tests/soak/$1.sh" ;;
	esac
}

run_one() { # NAME
	local name=$1 status=0 before=$SECONDS word=passed
	echo "== $name"
	program "$name" > "$logs/$name.log" 2>&1 < /dev/null || status=$?
	tests/cluster/vcluster down > /dev/null 2>&1 # what a script that broke off may have left
	[ "$status" = 0 ] || { word="FAILED with status $status" failed=$((failed + 1)); }
	tail -n 60 "$logs/$name.log" | sed 's/^/  /'
	lines+=("$(printf '%-16s %6d s  %s' "$name" "$((SECONDS - before))" "$word")")
}

trap 'tests/cluster/vcluster down > /dev/null 2>&1' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir -p "$logs"
if [ -n "${SOAK_ONLY:-}" ]; then
	read -r -a names <<< "$SOAK_ONLY"
else
	mapfile -t names < <(cd tests/soak && printf '%s\n' *.sh | sed 's/\.sh$//' | grep -vx run)
	names+=(chaos)
fi
for name in "${names[@]}"; do
	run_one "$name"
done
{
	echo "== soak: seed $SEED"
	printf '%s\n' "${lines[@]}"
	echo "$((${#names[@]} - failed)) passed, $failed failed"
} | tee "$logs/summary"
[ "$failed" = 0 ]
