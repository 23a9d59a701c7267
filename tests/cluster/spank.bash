# spank.bash: what the suites of Slurm's plugin share.  `load spank`, after `load jobs`.
#
#   two_sockets_up N [LINE...]   for setup_file: Slurm on N hosts of 2 sockets and 8 GPUs that they do not
#                                have, with true affinity masks, and the plugin
#   plain_up N OPTION...         Slurm on N hosts as they are, and the plugin
#   need_slurm                   skips where there can be none, with the reason
#   use_stack WORD...            plugstack.conf on all hosts from now on
#   srun OPTION...               as alice, on n0
# shellcheck shell=bash disable=SC2154

why_no_slurm() {
	local program
	why_no_cluster
	[ "${SAN:-}" != 1 ] || echo "slurmstepd does not load the sanitizers"
	[ -e /usr/include/slurm/spank.h ] || echo "no slurm/spank.h (tests/deps launchers installs it)"
	for program in munged slurmctld slurmd srun; do
		PATH=$PATH:/usr/sbin command -v $program > /dev/null ||
			echo "no $program (tests/deps launchers installs it)"
	done
}

# plugstack.conf, its agent and its default those of WORDs.
stack() { # WORD...
	echo "optional $BUILD/lib/berth_spank.so topology=/vc/topo.xml ${*:-agent=/usr/lib/berth/berth-agent}"
}

# On all hosts from now on.
use_stack() { # WORD...
	local h
	stack "$@" > "$BATS_TEST_TMPDIR/stack"
	for h in $("$VCLUSTER" list | cut -d " " -f 1); do
		on "$h" tee /etc/slurm/plugstack.conf < "$BATS_TEST_TMPDIR/stack" > /dev/null
	done
}

plugin_up() { # STACK N OPTION...
	local stack=$1 k n=$2; shift 2
	make -s -C "$ROOT" BUILD="$BUILD" spank >&2
	echo "$stack" > "$BATS_FILE_TMPDIR/plugstack.conf"
	"$ROOT/tests/cluster/vslurm" up "$n" --plugstack "$BATS_FILE_TMPDIR/plugstack.conf" "$@" >&2
	for ((k = 0; k <= n; k++)); do
		on "n$k" install -D -m 755 "$AGENT" /usr/lib/berth/berth-agent
	done
}

two_sockets_up() { # N LINE...
	local n=$1; shift
	"$ROOT/tests/machines/mkmachine.py" "$BATS_FILE_TMPDIR" two-sockets-8gpu
	plugin_up "$(stack)" "$n" --xml "$BATS_FILE_TMPDIR/two-sockets-8gpu.xml" "$@"
}

plain_up() { # N OPTION...
	plugin_up "$(stack | sed 's, topology=[^ ]*,,')" "$@"
}

srun() { as alice n0 timeout -k 5 60 srun "$@" < /dev/null 2>&1; }

need_slurm() {
	local why
	why=$(why_no_slurm | head -1)
	[ -z "$why" ] || skip "$why"
}
