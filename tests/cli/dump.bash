# dump.bash: runner --dump, for the suites about it.
# shellcheck shell=bash

# COMMAND sees the jobs below XDG_RUNTIME_DIR alone.  The other folder in which runner looks is one for all
# suites that run at a time: where it cannot be hidden, none of them may run now.
alone() { # COMMAND...
	if unshare --mount true 2> /dev/null; then
		# shellcheck disable=SC2016 # $ is for that shell
		unshare --mount sh -c 'for i in 1 2 3; do
				mkdir -p -m 700 "$0" && mount -t tmpfs -o mode=700 none "$0" 2> /dev/null && break
			done
			exec "$@"' "/tmp/berth-$(id -u)" "$@"
	else
		"$@"
	fi
}
