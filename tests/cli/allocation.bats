#!/usr/bin/env bats
# takes_s: 4
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the ranks' shells; variables are meant for one test; bats sets output
# Inside the job of a resource manager, as its environment tells: 127.0.0.N are hosts here.
# tests/cluster/slurm_allocation.bats has a real Slurm.
load common

setup() {
	export BERTH_ALLOW_SAME_HOST=1
}

# The hosts of the ranks, in the order of ranks.
hosts_of() { "$RUNNER" -q --no-tag --bind-to none "$@" sh -c 'echo "$RANK $HOROVOD_HOSTNAME"' < /dev/null | sort -n | cut -d' ' -f2 | xargs; }

refused() { # ID ARGUMENT...
	local id=$1; shift
	run -2 "$RUNNER" "$@" true < /dev/null
	hinted
	says "$(sed -n "s/^ERR($id, [A-Z_]*, \"\([^%\"]*\).*/\1/p" "$ROOT/common/errors.def")"
}

slurm() { # NODES TASKS CPUS
	export BERTH_TRANSPORT=local # there is no Slurm whose srun could start agents
	export SLURM_JOB_ID=77 SLURM_JOB_NODELIST=$1 SLURM_TASKS_PER_NODE=$2 SLURM_JOB_CPUS_PER_NODE=$3 SLURM_NTASKS=1
}

@test "each manager's hosts and slots" {
	printf '127.0.0.%s\n' 2 2 3 > "$T/lines"
	printf '127.0.0.%s %s all.q UNDEFINED\n' 2 2 3 1 > "$T/sge"
	printf '127.0.0.%s slots=%s\n' 2 2 3 1 > "$T/mpi"
	want='127.0.0.2 127.0.0.2 127.0.0.3'
	[ "$(PBS_NODEFILE=$T/lines hosts_of)" = "$want" ]
	[ "$(LSB_JOBID=1 LSB_MCPU_HOSTS='127.0.0.2 2 127.0.0.3 1' hosts_of)" = "$want" ]
	[ "$(LSB_JOBID=1 LSB_DJOB_HOSTFILE=$T/lines hosts_of)" = "$want" ]
	[ "$(PE_HOSTFILE=$T/sge hosts_of)" = "$want" ]
	[ "$(OMPI_MCA_orte_default_hostfile=$T/mpi hosts_of)" = "$want" ]
	[ "$(HYDRA_HOST_FILE=$T/mpi hosts_of)" = "$want" ]
	[ "$(COBALT_NODEFILE=$T/lines hosts_of -np 3)" = "$want" ]
	slurm '127.0.0.[2-3]' 2,1 2,1
	[ "$(PBS_NODEFILE=/none hosts_of)" = "$want" ] # Slurm comes first
	[ "$(hosts_of --map-by node)" = '127.0.0.2 127.0.0.3 127.0.0.2' ]
}

@test "Flux: the program says the hosts, in time" {
	# No Flux can be installed here: these lines speak for flux-getattr(1).
	mkdir "$T/bin"
	printf '#!/bin/sh\n[ "$*" = "getattr hostlist" ] && [ "$FLUX_URI" = local:///x ] && echo "127.0.0.[2-3]"\n' > "$T/bin/flux"
	chmod +x "$T/bin/flux"
	export FLUX_URI=local:///x
	[ "$(PATH=$T/bin:$PATH hosts_of -ppn 1)" = '127.0.0.2 127.0.0.3' ]
	printf '#!/bin/sh\necho no >&2; exit 1\n' > "$T/bin/flux"
	PATH=$T/bin:$PATH refused E_ALLOCATION_READ -np 1
	says 'Flux job: `flux getattr hostlist`: '
	refused E_ALLOCATION_READ -np 1
}

@test "-H and host files choose some of the hosts, and cannot ask for more than there is" {
	slurm '127.0.0.[2-4]' '2(x2),1' '4(x2),1'
	[ "$(hosts_of -H 127.0.0.3)" = '127.0.0.3 127.0.0.3' ]
	[ "$(hosts_of -H 127.0.0.4,127.0.0.2:1)" = '127.0.0.4 127.0.0.2' ]
	[ "$(hosts_of --hostfile <(echo 127.0.0.4))" = 127.0.0.4 ]
	[ "$(hosts_of -H 127.0.0.2 -ppn 4)" = '127.0.0.2 127.0.0.2 127.0.0.2 127.0.0.2' ]
	# the same host under another name, by its address
	SLURM_JOB_NODELIST=localhost SLURM_TASKS_PER_NODE=2 SLURM_JOB_CPUS_PER_NODE=2 run -0 hosts_of -H "$(uname -n)"
	[ "$output" = "$(uname -n) $(uname -n)" ]
	SLURM_JOB_NODELIST=localhost SLURM_TASKS_PER_NODE=2 SLURM_JOB_CPUS_PER_NODE=2 run -0 hosts_of -H 127.0.0.9
	[ "$output" = '127.0.0.9 127.0.0.9' ]
	run -2 "$RUNNER" -H 10.9.9.9 true
	says "runner: -H: '10.9.9.9' is not a host of this Slurm job: it has 127.0.0.[2-4]"
	hinted
	run -2 "$RUNNER" --hostfile <(echo 127.0.0.2 slots=3) true
	says "'127.0.0.2' asks for 3 slots, but this Slurm job has 2 there (SLURM_TASKS_PER_NODE)"
	hinted
	run -2 "$RUNNER" -ppn 2 true
	says "-ppn 2 is too many: this Slurm job has 1 CPU on '127.0.0.4' (SLURM_JOB_CPUS_PER_NODE)"
	hinted
	[ "$(hosts_of -ppn 2 --oversubscribe | wc -w)" = 6 ]
	run -2 "$RUNNER" -np 6 true
	says '-np 6 asks for 6 ranks, but SLURM_TASKS_PER_NODE gives 5 slots (127.0.0.[2-3]:2 + 127.0.0.4:1)' -ppn
	hinted
	run -2 "$RUNNER" --nodes 2 true
	says 'to be 2, but is 3 (SLURM_TASKS_PER_NODE)'
}

@test "-H behind a ':' chooses hosts for one program, which shares the slots of the job" {
	local each=(sh -c 'echo "$RANK $HOROVOD_HOSTNAME"')
	slurm '127.0.0.[2-4]' '2(x2),1' '4(x2),1'
	[ "$(hosts_of -np 2 "${each[@]}" : -np 2 -H 127.0.0.2)" = '127.0.0.3 127.0.0.3 127.0.0.2 127.0.0.2' ]
	run -2 "$RUNNER" -np 2 -H 127.0.0.2 true : -np 1 true : -np 1 -H 127.0.0.4 true
	says '-np 2 + -np 1 asks for 3 ranks, but -H gives 2 slots (127.0.0.2:2)'
	[ "$(hosts_of -np 1 -H 127.0.0.2 "${each[@]}" : -np 1 "${each[@]}" : -np 1 -H 127.0.0.4)" = '127.0.0.2 127.0.0.2 127.0.0.4' ]
	[ "$(hosts_of -np 1 -H 127.0.0.2:1 "${each[@]}" : -np 1 -H 127.0.0.2:1)" = '127.0.0.2 127.0.0.2' ]
	[ "$(hosts_of -np 2 -ppn 1 "${each[@]}" : -np 3 -H 127.0.0.3 -ppn 3)" = '127.0.0.2 127.0.0.3 127.0.0.3 127.0.0.3 127.0.0.3' ]
	run -2 "$RUNNER" -np 2 -ppn 2 true : -np 3 -H 127.0.0.3 -ppn 3 true
	says "-ppn 5 is too many: this Slurm job has 4 CPUs on '127.0.0.3'"
	run -2 "$RUNNER" -np 1 -H 127.0.0.2:1 true : -np 2 -H 127.0.0.2:2 true
	says "'127.0.0.2' asks for 3 slots, but this Slurm job has 2 there"
	run -2 "$RUNNER" -np 1 true : -np 1 -H 10.9.9.9 true
	says "runner: -H: '10.9.9.9' is not a host of this Slurm job: it has 127.0.0.[2-4]"
	hinted
	run -2 "$RUNNER" -np 1 true : -np 1 -H 127.0.0.2,a b : -np 1 -H 127.0.0.2:x true
	says "runner: app 3: -H: host '127.0.0.2:x': "
	# two names of one host
	SLURM_JOB_NODELIST=localhost SLURM_TASKS_PER_NODE=2 SLURM_JOB_CPUS_PER_NODE=2 refused E_SAME_HOST -np 1 a : -np 1 -H 127.0.0.1 a : -np 1 -H localhost
}

@test "no hosts, or hosts that cannot be read" {
	SLURM_JOB_ID=7 run -0 hosts_of -np 1
	[ "$output" = "$(uname -n)" ]
	PBS_NODEFILE=$T/none refused E_ALLOCATION_READ -np 1
	says "PBS_NODEFILE: cannot learn the hosts of this PBS job: $T/none: No such file"
	# the user has said which
	PBS_NODEFILE=$T/none run -0 "$RUNNER" -np 1 -H localhost true
	says "No such file or directory; so -H is not compared with it"
	slurm n1 x 1
	run -2 "$RUNNER" true
	says "SLURM_TASKS_PER_NODE='x': it is not a list of numbers such as 2(x3),1"
	hinted
	head -c 100 /dev/zero > "$T/zeros"
	unset "${!SLURM_@}"
	PE_HOSTFILE=$T/zeros refused E_ALLOCATION_READ
	says 'not a text file'
}

@test "-v says from where hosts and slots come; one task beside many GPUs is noted" {
	slurm 127.0.0.2 1 8
	run -0 "$RUNNER" -v true
	says 'runner: hosts: SLURM_JOB_NODELIST (job 77 of Slurm), slots: SLURM_TASKS_PER_NODE'
	silent_on -ppn
	run -0 "$RUNNER" -v -H 127.0.0.2 true
	says '(job 77 of Slurm), slots: -H'
	export SLURM_GPUS_ON_NODE=8
	run -0 "$RUNNER" true
	[ "$output" = 'runner: SLURM_TASKS_PER_NODE gives each host 1 rank beside 8 GPUs; for one rank per GPU, use -ppn 8' ]
	SLURM_JOB_CPUS_PER_NODE=4 run -0 "$RUNNER" true
	says 'ask the job for as many CPUs, and use -ppn 8'
	for words in -q '-np 1' '-ppn 1'; do
		# shellcheck disable=SC2086 # words
		run -0 "$RUNNER" $words true
		[ -z "$output" ]
	done
	unset "${!SLURM_@}"
	run -0 "$RUNNER" -v -np 1 true
	says 'runner: hosts: this machine, slots: this machine'
}

@test "the plan and the variables of ranks name the hosts in use" {
	slurm '127.0.0.[2-5]' '2(x4)' '2(x4)'
	run -0 "$RUNNER" --no-tag -H 127.0.0.3,127.0.0.4,127.0.0.5 -np 4 sh -c 'echo "$SLURM_STEP_NODELIST $SLURM_STEP_NUM_NODES $SLURM_NODEID"'
	[ "$(sort -u <<< "$output" | grep ^127)" = $'127.0.0.[3-4] 2 0\n127.0.0.[3-4] 2 1' ]
	run -0 "$RUNNER" --plan true
	says 'plan: 8 ranks on 4 hosts'
	unset "${!SLURM_@}"
	SLURM_STEP_NODELIST=n9 SLURM_STEP_NUM_NODES=9 run -0 "$RUNNER" --no-tag -np 1 sh -c 'env | grep ^SLURM; true'
	[ -z "$output" ]
}

@test "one of several runners says so, and none runs" {
	SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=0 refused E_IN_FRONT -np 1
	says 'SLURM_STEP_NUM_TASKS=8: srun has started 8 runners'
	SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=7 run -2 "$RUNNER" -np 1 true
	[ -z "$output" ]
	SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 run -0 "$RUNNER" -np 1 true
	OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 refused E_IN_FRONT -np 1
	PMI_SIZE=2 PMI_RANK=0 refused E_IN_FRONT -np 1
	# below runner itself: one rank may start a job of its own, several may not
	run -0 "$RUNNER" --no-tag -np 1 "$RUNNER" --no-tag -np 2 echo inner
	[ "$(grep -v ' ranks share ' <<< "$output")" = $'inner\ninner' ]
	run -2 "$RUNNER" --no-tag --keep-going -np 2 "$RUNNER" -np 1 echo inner
	[ "$(grep -c "^runner: BERTH_SIZE=2: another runner has started" <<< "$output")" = 1 ]
	silent_on inner$'\n'
	SLURM_STEP_NUM_TASKS=8 run -0 "$RUNNER" --version
}
