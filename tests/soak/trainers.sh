#!/bin/bash
# trainers.sh [NAME...]: a short training by lightning, accelerate and transformers, with 2 ranks
# and the backend "berth" of torch.distributed.  Each must end with the loss that it has with gloo.
# `make trainers` installs them.
set -u
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-$PWD/build}
case $build in /*) ;; *) build=$PWD/$build ;; esac
python=$PWD/build/trainers/bin/python3
export PYTHONPATH=$PWD/lib/python PYTHONDONTWRITEBYTECODE=1 BERTH_LIBRARY=$build/lib/libberth.so
export OMP_NUM_THREADS=1
[ $# -gt 0 ] || set -- lightning accelerate transformers
[ -e build/trainers/installed ] || { echo "skipped: $*: no build/trainers (make trainers)"; exit 0; }
trap 'exit 130' INT
trap 'exit 143' TERM

said=$(mktemp)
trap 'rm -f "$said"' EXIT
train() { # NAME BACKEND: sets line
	timeout -k 5 180 "$build/bin/runner" -q --no-tag --oversubscribe -np 2 "$python" tests/soak/trainers.py "$1" "$2" \
		> "$said" 2>&1 < /dev/null || { echo "$1: FAILED with $2, status $?:"; tail -n 20 "$said"; return 1; }
	line=$(grep "^$1: 2 ranks, $2: " "$said") || { echo "$1: FAILED with $2, it said:"; tail -n 20 "$said"; return 1; }
}

failed=0
for name; do
	train "$name" berth || { failed=$((failed + 1)); continue; }
	ours=$line
	train "$name" gloo || { failed=$((failed + 1)); continue; }
	read -r before after <<< "${ours##*: }"
	result=FAILED
	[ "${ours##*: }" != "${line##*: }" ] || ! awk "BEGIN { exit !($after < $before / 2) }" || result=passed
	[ "$result" = passed ] || failed=$((failed + 1))
	printf '%-14s loss %s, then %s; with gloo %s  %s\n' "$name" "$before" "$after" "${line##* }" "$result"
done
[ "$failed" = 0 ]
