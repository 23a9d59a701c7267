#!/bin/bash
# venv.sh VENV REQUIREMENTS: a Python environment with what REQUIREMENTS lists.
# Made with the system's Python, and readable by everybody: ranks may run as other users.
# VENV/installed is its stamp; pip's words go to VENV.log and are shown only if it fails.
set -eu
venv=$1 requirements=$2 log=$1.log
umask 022
echo "venv: installing $(grep -v '^#' "$requirements" | paste -sd ' ') into $venv"
rm -rf "$venv"
mkdir -p "$(dirname "$venv")"
if ! { /usr/bin/python3 -m venv "$venv" &&
	"$venv/bin/pip" install --disable-pip-version-check --progress-bar off -r "$requirements"; } \
	> "$log" 2>&1 < /dev/null; then
	tail -20 "$log" >&2
	echo "venv: pip could not install $requirements; all it said is in $log" >&2
	exit 1
fi
touch "$venv/installed"
