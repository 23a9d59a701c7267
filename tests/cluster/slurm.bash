# slurm.bash: what the suites with a real Slurm share.  `load slurm`, after `load jobs`.
#
#   slurm_up N [OPTION...]   for setup_file: the hosts, with Slurm, where that can be
#   need_slurm               first word of setup: skips where it cannot, with the reason
# shellcheck shell=bash disable=SC2154

why_no_slurm() {
	local program
	why_no_cluster
	for program in munged slurmctld slurmd sbatch salloc; do
		PATH=$PATH:/usr/sbin command -v $program > /dev/null || {
			echo "no $program (tests/deps launchers installs it)"
			return
		}
	done
}

slurm_up() { # N OPTION...
	[ -n "$(why_no_slurm)" ] || "$ROOT/tests/cluster/vslurm" up "$@" >&2
}

need_slurm() {
	local why
	why=$(why_no_slurm | head -1)
	[ -z "$why" ] || skip "$why"
	mkdir -p "$STATE/t"
	chmod 1777 "$STATE/t"
}
