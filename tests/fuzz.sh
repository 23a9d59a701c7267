#!/bin/bash
# fuzz.sh FUZZER SECONDS: run one libFuzzer program on its corpus for so long.
# The corpus grows in build/; what breaks the parser is left beside it.
set -eu
fuzzer=$1 seconds=$2
name=$(basename "$fuzzer")
seeds=$(dirname "$0")/fuzz/corpus/$name
corpus=$(dirname "$fuzzer")/corpus/$name
mkdir -p "$corpus"
set -- "$corpus"
[ -d "$seeds" ] && set -- "$@" "$seeds"
exec "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 \
	-verbosity=0 -artifact_prefix="$(dirname "$corpus")/$name-" "$@"
