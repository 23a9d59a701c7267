#!/bin/bash
# venv.sh VENV REQUIREMENTS: a Python environment with what REQUIREMENTS lists.
# Made with the system's Python, and readable by everybody: ranks may run as other users.
# VENV/installed is its stamp; pip's words go to VENV.log and are shown only if it fails.
# What was there before is used on then, as where there is no network.
set -eu
venv=$1 requirements=$2 log=$1.log
umask 022
echo "venv: installing $(grep -v '^#' "$requirements" | paste -sd ' ') into $venv"
[ ! -e "$venv/installed" ] || { rm -rf "$venv.old"; mv "$venv" "$venv.old"; }
rm -rf "$venv"
mkdir -p "$(dirname "$venv")"
options=(--disable-pip-version-check --progress-bar off)
# Five times for each name takes minutes.
[ -n "$(ip route show default; ip -6 route show default)" ] || options+=(--retries 0)
if ! { /usr/bin/python3 -m venv "$venv" && "$venv/bin/pip" install "${options[@]}" -r "$requirements"; } \
	> "$log" 2>&1 < /dev/null; then
	tail -20 "$log" >&2
	echo "venv: pip could not install $requirements; all it said is in $log" >&2
	if [ -e "$venv.old" ]; then
		rm -rf "$venv"
		mv "$venv.old" "$venv"
		echo "venv: $venv stays as it was" >&2
	fi
	exit 1
fi
touch "$venv/installed"
rm -rf "$venv.old"
