#!/bin/bash
# fuzz.sh FUZZER SECONDS: run one libFuzzer program on its corpus for so long; 0: its corpus once,
# which build/replay/FUZZER can do, too.
# What it learns goes to build/; what breaks the parser is left beside it.
# After a finding is mended, its file belongs into tests/fuzz/corpus/FUZZER.
set -eu
fuzzer=$1 seconds=$2
name=$(basename "$fuzzer")
seeds=$(dirname "$0")/fuzz/corpus/$name
corpus=$(dirname "$fuzzer")/corpus/$name
[[ $fuzzer == */replay/* ]] || mkdir -p "$corpus"
found=$(dirname "$corpus")/$name-
options=(-print_funcs=0 "-timeout=$((10 * ${SLOW:-1}))" -rss_limit_mb=2048 -verbosity=0 -artifact_prefix="$found")
FUZZ_DIR=$(mktemp -d -p /dev/shm fuzz.XXXXXX) # in memory: some write files for each input
export FUZZ_DIR
trap 'rm -rf "$FUZZ_DIR"' EXIT
if [[ $fuzzer == */replay/* ]]; then
	"$fuzzer" "$seeds"/*
elif [ "$seconds" = 0 ]; then
	"$fuzzer" "${options[@]}" -runs=0 "$seeds"
else
	"$fuzzer" "${options[@]}" -max_total_time="$seconds" -print_final_stats=0 "$corpus" "$seeds"
fi < /dev/null
