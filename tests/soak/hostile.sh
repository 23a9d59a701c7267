#!/bin/bash
# hostile.sh: every act of hostile peers, every cut of a launcher's stream, HOSTILE_N (300) seeds of
# random messages in both directions.  Prints a line for each agent's act and counts; fails on any.
set -u
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
case $build in /*) ;; *) build=$PWD/$build ;; esac
n=${HOSTILE_N:-300} seed=${SEED:-$RANDOM} failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo "SEED=$seed"
make -s all "$build/helpers/hostile_agent" || exit

random=()
for ((i = 0; i < n; i++)); do random+=("random:$((seed + i))"); done

mapfile -t acts < <(tests/cli/hostile.py --list)
tests/cli/hostile.py "$build/bin/runner" "$build/bin/berth-agent" "$build/helpers/hostile_agent" \
	"$folder" "${acts[@]}" "${random[@]}" > "$folder/agents" || failed=1
grep -v '^ok   random:' "$folder/agents"
printf 'hostile agents: %d of %d as they should be\n' "$(grep -c '^ok' "$folder/agents")" \
	"$((${#acts[@]} + n))"
printf 'hostile launchers: '
tests/cli/hostile_runner.py "$build/bin/berth-agent" || failed=1
printf 'cut off after each byte: '
tests/cli/hostile_runner.py "$build/bin/berth-agent" cuts || failed=1
printf 'changed bytes: '
tests/cli/hostile_runner.py "$build/bin/berth-agent" "${random[@]}" || failed=1
exit $failed
