#!/usr/bin/env bats
# limit_s: 240
# takes_s: 13
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the ranks' shells; bats sets output and stderr
# Commands copied from mpirun, mpiexec and horovodrun: understood, ignored with a line, or refused.
load common

r() { timeout -k 5 30 "$RUNNER" "$@" < /dev/null; }

# The command runs N ranks.
ranks() { # N OPTION...
	local n=$1; shift
	run -0 --separate-stderr r "$@" sh -c 'echo "x$WORLD_SIZE"'
	[ "$(grep -c "x$n\$" <<< "$output")" = "$n" ] || { echo "$*: $output $stderr"; return 1; }
}

# It runs, and says in one line that WHAT was ignored.
ignored() { # WHAT OPTION...
	local what=$1; shift
	ranks 1 -np 1 "$@"
	[ "$(grep -c "^runner: ignored: $what" <<< "$stderr")" = 1 ] || { echo "$*: $stderr"; return 1; }
	run -0 --separate-stderr r -q -np 1 "$@" true
	no_stderr
}

# Exit status 2, its name and one hint; nothing starts.
refused() {
	run -2 r -np 1 "$@" touch "$T/started"
	says "'$1' of " "is not supported" || return
	hinted || return
	[ ! -e "$T/started" ]
}

# The ranks get NAME=VALUE.
sets() { # NAME=VALUE OPTION...
	local want=$1; shift
	run -0 --separate-stderr r -np 1 --no-tag "$@" printenv "${want%%=*}"
	[ "$output" = "${want#*=}" ] || { echo "$*: ${want%%=*} is $output, not ${want#*=}"; return 1; }
}

@test "horovodrun -np 4 -H localhost:4 python train.py" {
	ranks 4 -np 4 -H localhost:4
	ranks 2 --gloo -np 2 --hosts localhost:2
	ranks 2 -np 2 -hostfile <(echo localhost slots=2)
	ranks 2 --num-proc 2 --hostfile <(echo localhost slots=2)
}

# Asleep in open(), not on its way there.
opens() { [ "$(cat "/proc/$1/comm")" = runner ] && grep -q '^State:.S' "/proc/$1/status"; }

ended_by() { # SIGNAL, which the last job gets
	local status=0
	kill -s "$1" $!
	timeout 10 tail --pid=$! -f /dev/null || kill -KILL $!
	wait $! || status=$?
	[ $status = $((128 + $(kill -l "$1"))) ]
}

@test "while runner waits for a host file, INT, TERM and QUIT end it" {
	local signal
	mkfifo "$T/hosts"
	for signal in INT TERM QUIT; do
		env --default-signal=INT,QUIT "$RUNNER" --hostfile "$T/hosts" true 3>&- &
		wait_for opens $!
		ended_by $signal
		env --default-signal=INT,QUIT "$RUNNER" --hostfile "$T/hosts" true 3>&- &
		exec 4> "$T/hosts" # as soon as runner has it open
		ended_by $signal
		exec 4>&-
	done
}

@test "--hostfile -: the hosts are on stdin, which is then at its end" {
	run -0 --separate-stderr timeout 30 "$RUNNER" --hostfile - --no-tag sh -c 'echo "x$WORLD_SIZE"; cat' <<< 'localhost slots=2'
	[ "$output" = $'x2\nx2' ]
	echo localhost:3 > "$T/hosts" # a file is not read again from its begin
	run -0 --separate-stderr timeout 30 "$RUNNER" -f - --no-tag sh -c 'echo "x$WORLD_SIZE"; cat' < "$T/hosts"
	[ "$output" = $'x3\nx3\nx3' ]
	run -2 timeout 30 "$RUNNER" -f - true <<< $'localhost\nlocalhost foo=3'
	says "stdin:2: " "'foo=3'"
	run -2 timeout 30 "$RUNNER" -f - true < /dev/null
	says "'stdin' names no host"
	run -2 timeout 30 "$RUNNER" -f - true < /
	says "cannot read host file 'stdin': Is a directory"
}

@test "mpirun -np 2 -H localhost:2 --bind-to none --map-by slot -x A -mca pml ob1" {
	A=1 ranks 2 -np 2 -H localhost:2 --allow-run-as-root -bind-to none -map-by slot -x A -mca pml ob1 -mca btl '^openib'
	ranks 2 --map-by ppr:2:node
	ranks 2 -npernode 2
	ranks 2 -N 2 -host localhost
	ranks 1 --pernode
	ranks 2 -np 2 --hostfile <(echo localhost slots=1) --map-by :OVERSUBSCRIBE
	ranks 2 -np 2 --machinefile <(echo localhost:2)
}

@test "mpiexec -n 2 -ppn 2 -hosts localhost -genv A 1" {
	ranks 2 -n 2 -ppn 2 -hosts localhost
	ranks 2 -n 2 -f <(echo localhost:2) -genvall -l
	ranks 2 -perhost 2 -bind-to core
	ranks 2 -n 2 -launcher fork
}

@test "srun and torchrun words: --ntasks, --nproc-per-node" {
	ranks 2 --ntasks 2
	ranks 2 --nproc-per-node 2
	ranks 2 --ntasks-per-node=2
}

@test "options of torchrun are mapped, ignored or refused by name" {
	ranks 2 --standalone --nnodes=1 --nproc-per-node=2
	ignored --rdzv-backend --rdzv-backend=c10d
	sets ROLE_NAME=trainer --role trainer
	sets MASTER_PORT=29500 --master-port 29500
	refused --node-rank 0
	refused -m
	run -2 r --nproc-per-node gpu true
	hinted
}

@test "options of srun are mapped, ignored or refused by name" {
	ranks 2 --nodes=1 --ntasks-per-node=2 -w localhost --cpu-bind=none --gpus-per-task=1 --unbuffered --kill-on-bad-exit=1
	ranks 2 -n 2 --nodelist localhost:2 --label --export=ALL --cpu-bind=verbose,cores -D /
	ranks 1 -np 1 --export=NONE
	ignored --unbuffered --unbuffered
	refused -o out.%t
	refused --gres gpu:1
	refused --partition gpu
	run -0 r --ntasks 1 -N 1 true
	says "warning: -N 1 is the number of ranks on each host here"
	hinted
}

@test "parameters become variables of the ranks" {
	sets OMPI_MCA_btl=self,tcp -mca btl self,tcp
	sets OMPI_MCA_btl=self,tcp --mca btl self,tcp
	sets A=1 -genv A 1
	sets B='x y' -env B 'x y'
	A=7 sets A=7 -genvlist A,HOME
	sets HOROVOD_FUSION_THRESHOLD=33554432 --fusion-threshold-mb 32
	sets HOROVOD_CYCLE_TIME=3.5 --cycle-time-ms 3.5
	sets HOROVOD_CACHE_CAPACITY=1024 --cache-capacity 1024
	sets HOROVOD_AUTOTUNE=1 --autotune
	sets HOROVOD_TIMELINE=/tmp/t.json --timeline-filename /tmp/t.json
	sets HOROVOD_STALL_CHECK_DISABLE=1 --no-stall-check
	sets HOROVOD_LOG_LEVEL=INFO --log-level INFO
	sets HOROVOD_THREAD_AFFINITY=0,1 --thread-affinity 0,1
	sets NCCL_SOCKET_IFNAME=eth0,eth1 --network-interfaces eth0,eth1
	sets HOROVOD_GLOO_IFACE=eth0 --network-interfaces eth0,eth1
	sets NCCL_IB_DISABLE=1 --tcp
}

@test "--net: address ranges for libberth" {
	for range in 10.0.0.0/8 192.0.2.7 'fd00::/8,0.0.0.0/0'; do
		run -0 "$RUNNER" --no-tag -np 1 --net "$range" sh -c 'echo "$BERTH_NET"'
		[ "$output" = "$range" ]
	done
	for range in '' ',' eth0 10.0.0.0/ 10.0.0.0/x 10.0.0.0/33 fd00::/129 '10.0.0.0/8,'; do
		run -2 "$RUNNER" -np 1 --net "$range" true
		[[ $output == *'is not a range of addresses'* ]]
	done
}

# The command of Horovod's manual for Open MPI.
@test "-x of a variable that is not set is a warning" {
	unset LD_LIBRARY_PATH
	run -0 r -np 2 --no-tag -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH \
		-mca pml ob1 -mca btl ^openib sh -c 'echo "$NCCL_DEBUG ${LD_LIBRARY_PATH-unset}"'
	says 'warning: -x LD_LIBRARY_PATH: the variable is not set here' $'INFO unset\nINFO unset'
	[ "$(grep -c LD_LIBRARY_PATH <<< "$output")" = 2 ] # one warning and its hint, for both ranks
	run -0 r -q -np 1 -x LD_LIBRARY_PATH true
	[ "$output" = "" ]
}

# NAMES that the rank has of those that a test has set, and NCCL_DEBUG.
has() { # EXPORT OPTION...
	run -0 --separate-stderr r -np 1 --no-tag --export "$@" \
		sh -c 'env | sed -n "s/^\(ONE\|TWO\|LANGUAGE\|NCCL_DEBUG\|HOME\|PATH\)=/\1=/p" | sort | tr "\n" " "'
}

@test "--export: all, none, a list, as srun reads it" {
	export ONE=1 TWO=2 LANGUAGE=C HOME=/h
	has all
	[ "$output" = "HOME=/h LANGUAGE=C NCCL_DEBUG=WARN ONE=1 PATH=$PATH TWO=2 " ]
	has NONE
	[ "$output" = "HOME=/h NCCL_DEBUG=WARN PATH=$PATH " ]
	has none -x ONE
	[ "$output" = "HOME=/h NCCL_DEBUG=WARN ONE=1 PATH=$PATH " ]
	has TWO,ONE=3
	[ "$output" = "HOME=/h NCCL_DEBUG=WARN ONE=3 PATH=$PATH TWO=2 " ]
	has ALL,ONE=3
	[ "$output" = "HOME=/h LANGUAGE=C NCCL_DEBUG=WARN ONE=1 PATH=$PATH TWO=2 " ]
	has ALL,ONE=3 -x ONE=4
	[ "$output" = "HOME=/h LANGUAGE=C NCCL_DEBUG=WARN ONE=4 PATH=$PATH TWO=2 " ]
	has "'ONE=a,b',PATH=/bin,NCCL_DEBUG=INFO"
	[ "$output" = "HOME=/h NCCL_DEBUG=INFO ONE=a,b PATH=/bin " ]
	unset ONE
	has ALL,ONE=3
	[ "$output" = "HOME=/h LANGUAGE=C NCCL_DEBUG=WARN ONE=3 PATH=$PATH TWO=2 " ]
	# the rank's own variables are there
	run -0 r -np 1 --no-tag --export none sh -c 'echo "$RANK $WORLD_SIZE ${MASTER_PORT:+port} ${LANGUAGE-unset}"'
	[ "$output" = "0 1 port unset" ]
	# its variable and its key
	BERTH_FORWARD=none run -0 r -np 1 --no-tag sh -c 'echo "${TWO-unset} ${BERTH_FORWARD-unset}"'
	[ "$output" = "unset unset" ]
	echo 'forward = TWO' > "$T/conf"
	run -0 r --config-file "$T/conf" -np 1 --no-tag sh -c 'echo "${TWO-unset} ${LANGUAGE-unset}"'
	[ "$output" = "2 unset" ]
}

# No output of OPTION... has "hidden".
hides() { # STATUS OPTION...
	local want=$1; shift
	run r -np 1 -vv --report-bindings --events "$T/events" --report "$T/report.json" --report "$T/report.html" "$@" true
	[ "$status" = "$want" ] || { echo "$*: $status: $output"; return 1; }
	silent_on hidden
	touch "$T/events" "$T/report.json" "$T/report.html"
	run cat "$T/events" "$T/report.json"
	silent_on hidden
	run grep -v aria-hidden "$T/report.html" # of the legend
	silent_on hidden
}

@test "no value of a secret is printed, nor what follows the = of a malformed name" {
	hides 0 -x HF_TOKEN=hidden
	hides 0 --export HF_TOKEN=hidden
	WANDB_API_KEY=hidden hides 0
	WANDB_API_KEY=there hides 0 --export ALL,WANDB_API_KEY=hidden
	hides 2 -x 'MY KEY=hidden'
	hides 2 -x '=hidden'
	hides 2 -x 'MY_NAME*=hidden'
	hides 2 --export '9=hidden'
	hides 2 --export "MY='hidden"
	BERTH_EXPORT='9=hidden' hides 2
	BERTH_FORWARD='9=hidden' hides 2
	hides 2 -genv 'A=hidden' x
	hides 2 -genv 'A*' hidden
	hides 0 -mca plm_api_key hidden
	hides 2 -mca rmaps_api_key hidden
	hides 2 --export none a : HF_TOKEN=hidden
	for line in 'export = MY KEY=hidden' 'forward = 9=hidden' 'export HF_TOKEN=hidden' 'HF_TOKEN: hidden'; do
		echo "$line" > "$T/conf"
		hides 2 --config-file "$T/conf"
	done
	for line in 'MY KEY=hidden' 'KEY: hidden' 'KEY= hidden' 'KEY="hidden' 'KEY=$hidden'; do
		echo "$line" > "$T/env"
		hides 2 --env-file "$T/env"
	done
	echo KEY=hidden > "$T/env"
	hides 0 --env-file "$T/env"
	run r --plan -np 1 -vv -x HF_TOKEN=hidden HF_TOKEN=hidden
	silent_on hidden
}

@test "what has no meaning here is ignored with one line" {
	ignored --gloo --gloo
	ignored --disable-cache --disable-cache
	ignored --allow-run-as-root --allow-run-as-root
	ignored "--map-by socket" --map-by socket
	ignored "--map-by core" --map-by core
	ignored --display-map --display-map
	ignored "-mca plm_rsh_agent ssh" -mca plm_rsh_agent ssh
	ignored "-rank-by slot" -rank-by slot
	ignored -noprefix -noprefix
	ignored -iface -iface eth0
	ignored -genvall -genvall
}

@test "what could change which processes run, where, or with what input is refused" {
	refused --npersocket 2
	refused --nolocal
	refused --cpu-set 0
	refused --app f
	refused -configfile f
	refused --prefix /opt
	refused --preload-binary
	refused -envnone
	refused -outfile-pattern f
	refused --mpi-args --x
	run -2 r -np 1 --map-by ppr:2:l3 true
	says "ppr:2:l3"
	hinted
	run -2 r -np 1 --map-by rankfile:file=x true
	hinted
	run -2 r -np 1 -mca rmaps_base_mapping_policy node true
	says "rmaps_base_mapping_policy"
	run -2 r -np 1 -rank-by core true
	hinted
}

@test "an option that is misspelt is not run: did you mean" {
	for pair in --ouput-filename:--output-filename --oversubscrib:--oversubscribe --hostfil:--hostfile; do
		run -2 r "${pair%%:*}" true
		says "unknown option '${pair%%:*}'" "${pair#*:}"
		hinted
	done
}

@test "- and --, - and _, NAME VALUE and NAME=VALUE are alike" {
	for form in "-output-filename $T/o" "--output_filename $T/o" "--output-filename=$T/o" "-output_filename=$T/o"; do
		rm -rf "$T/o"
		# shellcheck disable=SC2086 # words
		ranks 1 -np 1 $form
		[ -e "$T/o/rank.0/stdout" ]
	done
}

@test "the last one wins: config file, then environment, then option" {
	echo 'np = 1' > "$T/conf"
	ranks 1 --config-file "$T/conf"
	BERTH_NP=2 ranks 2 --config-file "$T/conf"
	BERTH_NP=2 ranks 3 --config-file "$T/conf" -np 3
	mkdir -p "$T/xdg/berth"
	printf '# mine\nnp = 4\ntag = no\n' > "$T/xdg/berth/config"
	XDG_CONFIG_HOME=$T/xdg ranks 4
	[ "$output" = $'x4\nx4\nx4\nx4' ]
	XDG_CONFIG_HOME=$T/xdg ranks 1 --config-file "$T/conf"
	XDG_CONFIG_HOME=$T/xdg ranks 4 --tag
	[[ $output == "[0]<stdout>:x4"* || $output == "["* ]]
}

@test "a mistake in a config file names file and line" {
	printf 'np = 2\n\nnp = zwei\n' > "$T/conf"
	run -2 r --config-file "$T/conf" true
	says "$T/conf:3" "'zwei'"
}

# ---- --rankfile ----

@test "--rankfile: the host of each rank, in Open MPI's form" {
	printf '# ranks\nrank 1=localhost slot=0:1\n\nrank 0 = localhost slot=0 # first\n' > "$T/ranks"
	run -0 "$RUNNER" --plan=json --rankfile "$T/ranks" true
	says '"np": 2'
	says "ignored: slot= in the rankfile (each rank gets CPUs near its GPU, see --bind-to)"
	sed -i 's/slot=.*//' "$T/ranks"
	run -0 "$RUNNER" -q --no-tag -rf "$T/ranks" sh -c 'echo $RANK' < /dev/null
	[ "$(sort <<< "$output")" = $'0\n1' ]
	BERTH_HOSTS=nosuch run -0 "$RUNNER" -q --rankfile "$T/ranks" true
	BERTH_RANKFILE=$T/ranks run -0 "$RUNNER" -q --plan=json -H localhost:1 true # -H comes later
	says '"np": 1'
}

@test "--rankfile: what is no rank file" {
	local line
	wrong() { # LINES TEXT
		printf "%b" "$1" > "$T/ranks"
		run -2 "$RUNNER" --rankfile "$T/ranks" true
		says "$2"
	}
	wrong 'rank 0=localhost\nlocalhost slots=2\n' "line 2: the line is not 'rank N=HOST slot=CPUS'"
	wrong 'rank 0=+n0 slot=0\n' "line 1: a relative host is not supported"
	wrong 'rank 0=a\nrank 0=b\n' "line 2: the rank has a line already"
	wrong 'rank 1=localhost\n' "a rank below the last one has no line"
	wrong '#\n' "no line names a rank"
	wrong 'rank x=a\n' "line 1: the line is not"
	run -2 "$RUNNER" --rankfile "$T/none" true
	says "No such file or directory"
}
