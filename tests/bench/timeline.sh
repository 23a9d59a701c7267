#!/bin/bash
# timeline.sh [RANKS [SLICES...]]: runner --trace-merge, with the time and the peak memory that it
# takes; the files of a million slices have 11 GB, in TMPDIR.
set -eu
. "$(dirname "$0")/common.bash"
make -s -C "$ROOT" "$AS_GIVEN/helpers/traces"
ranks=${1:-64}
shift || true
[ $# -gt 0 ] || set -- 100000 1000000
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
echo "== --trace-merge: $ranks ranks; at most 15 s for 100000 slices each, 120 s for 1000000; 64 MB"
for slices; do
	mkdir "$dir/ranks"
	"$BUILD/helpers/traces" "$dir/ranks" "$ranks" "$slices"
	forms=pftrace.gz
	[ "$slices" -gt 100000 ] || forms="json.gz pftrace.gz"
	for form in $forms; do
		/usr/bin/time -f "$slices slices, $form: %e s (%U user, %S system), %M KiB" \
			"$BUILD/bin/runner" --trace-merge "$dir/out.$form" "$dir"/ranks/* > /dev/null
	done
	rm -r "$dir/ranks"
done
