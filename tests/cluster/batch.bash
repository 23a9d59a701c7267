# batch.bash: what the tests of contrib/batch share.  `load batch`, after `load jobs`.
#
#   batch_setup              /vc/t/job, alice's: the scripts, and examples/checkpoint.py as train.py
#   batch_env                what a user's shell has; words for env(1)
#   job_file NAME            what is in /vc/t/job/NAME
#   said TEXT                the job has
#   step FILE                the step of the checkpoint in /vc/t/job/FILE
#   total RANKS STEPS        what RANKS ranks that did STEPS steps have summed up
# shellcheck shell=bash disable=SC2034,SC2154 # the tests use these

batch_setup() {
	mkdir -p "$STATE/t/job"
	cp "$ROOT/examples/checkpoint.py" "$STATE/t/job/train.py"
	cp "$ROOT"/contrib/batch/* "$STATE/t/job"
	chown -R 2001:2001 "$STATE/t/job"
	batch_env=(PATH="$BUILD/bin:/usr/local/bin:/usr/bin:/bin" PYTHONPATH="$ROOT/lib/python"
		BERTH_LIBRARY="$BUILD/lib/libberth.so" PYTHONDONTWRITEBYTECODE=1)
}

job_file() { cat "$STATE/t/job/$1"; }

said() { grep -qsF -- "$1" "$STATE/t/job/out"; }

step() { sed -n 's/.*"step": \([0-9]*\).*/\1/p' "$STATE/t/job/$1"; }

total() { echo $(($1 * $2 * ($2 - 1) / 2)); }
