#!/bin/bash
# programs.sh [N]: N random programs of libberth (10000), which tests/helpers/programs.c decides by
# SEED, over 2 to 9 ranks: half of them on this host, half as if on 2 to 4 hosts; two thirds
# with arrays in the memory of stand-in devices.  A failure is printed with the command that does
# its program alone.
set -u
cd "$(dirname "$0")/../.." || exit
programs=$BUILD/helpers/programs
total=${1:-${PROGRAMS:-10000}} seed=${SEED:=$RANDOM} each=50 failed=0 did=0
shapes=("-np 2" "-np 3 -hosts 2" "-np 4" "-np 2 -hosts 2" "-np 3" "-np 4 -hosts 3"
	"-np 5" "-np 6 -hosts 2" "-np 9" "-np 9 -hosts 4")

trap 'exit 130' INT
trap 'exit 143' TERM

echo "seed $seed"
while [ "$did" -lt "$total" ]; do
	read -r -a shape <<< "${shapes[$((did / each % ${#shapes[@]}))]}"
	# An odd first number: ranks of one host follow each other.
	first=$((did + did / each / ${#shapes[@]} % 2))
	command=("$programs" "${shape[@]}" -devices $(((did / each + did / each / ${#shapes[@]}) % 3)) "$seed" "$each" "$first")
	if ! timeout -k 5 300 "${command[@]}" > "$BUILD/soak-programs" 2>&1; then
		failed=$((failed + 1))
		echo "FAILED: ${command[*]}"
		head -c 3000 "$BUILD/soak-programs"
	fi
	did=$((did + each))
	[ $((did % 500)) != 0 ] || echo "$did programs, $failed of $((did / each)) runs failed"
done
rm -f "$BUILD/soak-programs"
echo "$did programs of seed $seed: $failed of $((did / each)) runs failed"
[ "$failed" = 0 ]
