#!/bin/bash
# move_ptx.sh [FOLDER]: move_ptx.h anew, of move.cu, by nvcc: `make ptx`.  FOLDER gets it, and move.ptx.
# Nothing in it needs a newer PTX than 6.3, which drivers since 410 take, so it says so in place of nvcc's
# own version.
set -eu
cd "$(dirname "$0")"
to=${1:-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvcc -ptx -O3 -std=c++17 -arch=compute_75 -o "$work/nvcc.ptx" move.cu
sed -e '/^[[:space:]]*\/\//d' -e '/^$/d' -e 's/^\.version .*/.version 6.3/' -e 's/^\.target .*/.target sm_60/' \
	-e 's/[[:space:]]*$//' "$work/nvcc.ptx" > "$work/move.ptx"
[ "$to" = . ] || cp "$work/move.ptx" "$to"
{
	echo '/* move_ptx.h - the kernel of move.cu, as nvcc and move_ptx.sh have made it. */'
	echo '/* clang-format off */'
	echo 'static const char move_ptx[] ='
	sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' -e 's/.*/	"&\\n"/' "$work/move.ptx"
	echo '	;'
} > "$to/move_ptx.h"
