#!/usr/bin/env bats
# limit_s: 240
# takes_s: 5
# shellcheck disable=SC1003,SC2016,SC2001,SC2154 # $ is for the ranks' shells; bats sets output
# What gets started, how many times, where, and with what environment.
load common

r() { timeout -k 5 30 "$RUNNER" "$@"; }

# Lines of $output without labels, sorted.
plain() { sed 's/^\[[0-9]*\]<std[a-z]*>://' <<< "$output" | sort; }

# Standard output of r alone.
out() { r "$@" 2> "$T/err" < /dev/null; }

@test "-np N starts N ranks, and each knows who it is" {
	run -0 out -np 3 sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE'
	[ "$(plain)" = $'0/3 0/3\n1/3 1/3\n2/3 2/3' ]
}

@test "-np glued, -n, --num-proc, = and the variable mean the same" {
	for form in "-np2" "-np 2" "-n 2" "--num-proc 2" "--num-proc=2" "--num_proc 2" "-np=2"; do
		# shellcheck disable=SC2086 # words
		run -0 out $form echo x
		[ "$(plain)" = $'x\nx' ] || { echo "$form: $output"; return 1; }
	done
	BERTH_NP=2 run -0 out echo x
	[ "$(plain)" = $'x\nx' ]
}

@test "without -np: all slots of -H; on this machine one rank per core" {
	run -0 out -H localhost:3 echo x
	[ "$(plain)" = $'x\nx\nx' ]
	cores=$("$RUNNER" --plan=json true | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["np"])')
	run -0 out echo x
	[ "$(plain | wc -l)" = "$cores" ]
}

@test "fewer ranks than slots: exactly -np" {
	run -0 out -np 2 -H localhost:4 sh -c 'echo $RANK/$WORLD_SIZE'
	[ "$(plain)" = $'0/2\n1/2' ]
}

@test "more ranks than slots need --oversubscribe" {
	run -2 out -np 3 -H localhost:2 true
	run cat "$T/err"
	says "-np 3 asks for 3 ranks" "-H gives 2 slots" "localhost:2"
	hinted
	run -0 out -np 3 -H localhost:2 --oversubscribe echo x
	[ "$(plain | wc -l)" = 3 ]
}

@test "-ppn N starts N ranks on each host" {
	run -0 out -ppn 2 -H localhost sh -c 'echo $RANK/$LOCAL_WORLD_SIZE'
	[ "$(plain)" = $'0/2\n1/2' ]
	run -0 out -ppn 2 -np 3 --allow-same-host -H localhost,127.0.0.1 sh -c 'echo $RANK $NODE_RANK $LOCAL_RANK'
	[ "$(plain)" = $'0 0 0\n1 0 1\n2 1 0' ]
}

@test "--map-by slot fills a host before the next, node deals out" {
	local show='echo $RANK $NODE_RANK $LOCAL_RANK'
	run -0 out -np 4 --allow-same-host -H localhost:2,127.0.0.1:2 sh -c "$show"
	[ "$(plain)" = $'0 0 0\n1 0 1\n2 1 0\n3 1 1' ]
	run -0 out -np 4 --allow-same-host -H localhost:2,127.0.0.1:2 --map-by node sh -c "$show"
	[ "$(plain)" = $'0 0 0\n1 1 0\n2 0 1\n3 1 1' ]
}

@test "CROSS_RANK counts the hosts that have this local rank" {
	run -0 out -np 3 --allow-same-host -H localhost:2,127.0.0.1:1 \
		sh -c 'echo $HOROVOD_RANK $HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE'
	[ "$(plain)" = $'0 0/2\n1 0/1\n2 1/2' ]
}

@test "MPMD: each program has its own -np, -x and --wdir; ranks count on" {
	mkdir "$T/a" "$T/b"
	run -0 out -np 2 -x V=1 --wdir "$T/a" sh -c 'echo one $RANK/$WORLD_SIZE $V ${PWD##*/}' : \
		-np 1 -x V=2 --wdir "$T/b" sh -c 'echo two $RANK/$WORLD_SIZE $V ${PWD##*/}'
	[ "$(plain)" = $'one 0/3 1 a\none 1/3 1 a\ntwo 2/3 2 b' ]
}

@test "-- ends the options, and so does the program; its own words are not read" {
	run -0 out -np 1 -- echo -np 7 --version
	[ "$(plain)" = "-np 7 --version" ]
	run -0 out -np 1 echo -np 7
	[ "$(plain)" = "-np 7" ]
}

@test "words reach the program as they are, no shell reads them" {
	run -0 out -np 1 --no-tag printf '<%s>\n' 'a b' '$HOME' '*' "'" '"' '\' '' $'x\ty' ';ls' 'é'
	[ "$output" = "<a b>
<\$HOME>
<*>
<'>
<\">
<\\>
<>
<x	y>
<;ls>
<é>" ]
}

@test "every variable of the contract is there, for every rank" {
	out -np 2 --allow-same-host -H localhost:1,127.0.0.1:1 --no-tag sh -c 'env -0 > '"$T"'/env.$RANK'
	run -0 /usr/bin/python3 - "$T" << 'P'
import os, sys
env = [dict(e.split("=", 1) for e in open(f"{sys.argv[1]}/env.{r}", errors="surrogateescape").read().split("\0") if e)
       for r in (0, 1)]
want = {
    "RANK": ("0", "1"), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
    "NODE_RANK": ("0", "1"), "GROUP_RANK": ("0", "1"), "GROUP_WORLD_SIZE": "2",
    "ROLE_RANK": ("0", "1"), "ROLE_WORLD_SIZE": "2", "ROLE_NAME": "default",
    "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
    "HOROVOD_RANK": ("0", "1"), "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "1",
    "HOROVOD_CROSS_RANK": ("0", "1"), "HOROVOD_CROSS_SIZE": "2", "HOROVOD_HOSTNAME": ("localhost", "127.0.0.1"),
    "OMPI_COMM_WORLD_RANK": ("0", "1"), "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_NODE_RANK": "0",
    "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1", "OMPI_MCA_orte_hnp_uri": "",
    "KERAS_DISTRIBUTION_NUM_PROCESSES": "2", "KERAS_DISTRIBUTION_PROCESS_ID": ("0", "1"),
    "BERTH_RANK": ("0", "1"), "BERTH_SIZE": "2", "BERTH_LOCAL_RANK": "0", "BERTH_LOCAL_SIZE": "1",
    "BERTH_NODE_RANK": ("0", "1"), "BERTH_NODES": "2",
    "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1", "NCCL_DEBUG": "WARN",
    "TF_GPU_THREAD_MODE": "gpu_private", "TF_GPU_THREAD_COUNT": "2",
}
for name, value in want.items():
    for r in (0, 1):
        is_ = env[r].get(name)
        should = value if isinstance(value, str) else value[r]
        if is_ != should:
            print(f"rank {r}: {name} is {is_}, not {should}")
for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "BERTH_JOB", "BERTH_VERSION"):
    if not env[0].get(name) or env[0][name] != env[1].get(name):
        print(f"{name}: {env[0].get(name)} and {env[1].get(name)}")
for name in ("JAX_COORDINATOR_ADDRESS", "KERAS_DISTRIBUTION_JOB_ADDRESSES"):
    if env[1].get(name) != env[1]["MASTER_ADDR"] + ":" + env[1]["MASTER_PORT"]:
        print(name, env[1].get(name))
if not 20000 <= int(env[0]["MASTER_PORT"]) <= 29499:
    print("MASTER_PORT", env[0]["MASTER_PORT"])
if int(env[0]["OMP_NUM_THREADS"]) < 1 or not env[0]["BERTH_CPUS"]:
    print("OMP_NUM_THREADS or BERTH_CPUS")
for name in ("TF_CONFIG", "OMP_PROC_BIND", "OMP_PLACES", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "BERTH_NP"):
    if name in env[0]:
        print(f"{name} should not be there")
names = [e.split("=", 1)[0] for e in open(f"{sys.argv[1]}/env.0", errors="surrogateescape").read().split("\0") if e]
if len(names) != len(set(names)):
    print("twice:", sorted(n for n in names if names.count(n) > 1))
P
	[ "$output" = "" ]
}

@test "the user's value goes before a default, -x before both, identity before all" {
	OMP_NUM_THREADS=7 NCCL_DEBUG=INFO RANK=9 WORLD_SIZE=9 MASTER_ADDR=elsewhere \
		run -0 out -np 1 -x NCCL_DEBUG=TRACE -x RANK=5 -x MASTER_PORT=4711 \
		sh -c 'echo $OMP_NUM_THREADS $NCCL_DEBUG $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT'
	[ "$(plain)" = "7 TRACE 0 1 127.0.0.1 4711" ]
}

@test "MASTER_PORT is free to listen on, and taken for others while the job runs" {
	run -0 out -np 1 /usr/bin/python3 -c '
import os, socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
port = int(os.environ["MASTER_PORT"])
t = socket.socket()
try: t.bind(("", port)); print("not held")
except OSError: pass
s.bind(("", port)); s.listen(); print("listens")'
	[ "$(plain)" = listens ]
}

@test "--tf-config: each rank may listen on its port, which is taken for others; all know all" {
	run -0 out --tf-config -np 3 --oversubscribe /usr/bin/python3 -c '
import json, os, socket
c = json.loads(os.environ["TF_CONFIG"])
ports = [int(worker.rsplit(":", 1)[1]) for worker in c["cluster"]["worker"]]
for port in ports:
    try: socket.socket().bind(("", port)); print("not held")
    except OSError: pass
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", ports[c["task"]["index"]])); s.listen()
assert len({*ports, int(os.environ["MASTER_PORT"])}) == 4 and c["task"]["index"] == int(os.environ["RANK"]), c
print(c["task"]["type"], c["cluster"])'
	[[ $(plain | uniq -c) =~ ^\ *3\ worker\ \{\'worker\':\ \[\'127.0.0.1:2[0-9]{4}\',\ [^\ ]*,\ [^\ ]*\]\}$ ]]
}

@test "--tf-config: a role for each program; a ps ends once the others have ended" {
	says_it='echo "$TF_CONFIG" | sed -E "s/:2[0-9]{4}/:P/g"' here="$T/ps"
	waits='until [ -e "$0" ]; do :; done'
	run -0 out --restarts 1 --kill-grace 0.2 --tf-config=chief -np 1 sh -c "$says_it; $waits" "$here" : \
		-np 1 sh -c "$says_it; $waits" "$here" : \
		--tf-config=evaluator -np 1 sh -c "$says_it" : \
		--tf-config=ps -np 2 sh -c "trap '' TERM; $says_it; [ \$RANK = 3 ] || : > '$here'; exec sleep 1000" : \
		--tf-config=none -np 1 sh -c 'echo "${TF_CONFIG-none}"'
	cluster='{"cluster":{"chief":["127.0.0.1:P"],"worker":["127.0.0.1:P"],"ps":["127.0.0.1:P","127.0.0.1:P"]},"task":'
	[ "$(plain | grep -v '"ps","index":0')" = "none
$cluster{\"type\":\"chief\",\"index\":0}}
$cluster{\"type\":\"evaluator\",\"index\":0}}
$cluster{\"type\":\"ps\",\"index\":1}}
$cluster{\"type\":\"worker\",\"index\":0}}" ] || { echo "$output"; false; }
	run ! grep restart "$T/err"
	# before that, its failure is one
	run -3 r --tf-config -np 1 sleep 1000 : --tf-config=ps -np 1 sh -c 'exit 3'
}

@test "--tf-config: a TF_CONFIG of the user's stands; E_TF_ROLES, E_TF_PORTS" {
	TF_CONFIG=mine run -0 out --tf-config -np 1 sh -c 'echo "$TF_CONFIG"'
	[ "$(plain)" = mine ]
	[ "$(grep -c 'TF_CONFIG is set, and the ranks keep that value' "$T/err")" = 1 ]
	TF_CONFIG=mine run -0 out --tf-config --export none -np 1 sh -c 'echo "$TF_CONFIG"'
	says '{"cluster":{"worker":["127.0.0.1:'
	[ ! -s "$T/err" ] || { cat "$T/err"; false; }
	run -2 r --tf-config=chief -np 2 --oversubscribe true
	says '--tf-config: 2 ranks have the role chief'
	hinted
	run -125 bash -c 'ulimit -n 60 && exec "$@"' bash "$RUNNER" -q --tf-config -np 64 --oversubscribe true
	says '--tf-config: cannot hold a port for each of 64 ranks'
	hinted
}

@test "-x NAME, -x NAME=VALUE, -x 'PREFIX*'" {
	PMI_ONE=1 PMI_TWO='2 =2' run -0 out -np 1 -x PMI_ONE -x 'NEW=a b=c' -x EMPTY= \
		sh -c 'echo "$PMI_ONE|$NEW|${EMPTY-unset}|${PMI_TWO-unset}"'
	[ "$(plain)" = '1|a b=c||unset' ]
	PMI_ONE=1 PMI_TWO='2 =2' run -0 out -np 1 -x 'PMI_*' sh -c 'echo "$PMI_ONE|$PMI_TWO"'
	[ "$(plain)" = '1|2 =2' ]
	BERTH_EXPORT='A=1 B=2' run -0 out -np 1 -x C=3 sh -c 'echo $A$B$C'
	[ "$(plain)" = 123 ]
}

@test "the environment is forwarded, with tuning; tasks of other launchers and options are not" {
	MINE='x y' OMPI_MCA_btl=tcp SLURM_PROCID=3 SLURM_STEP_ID=0 PMI_RANK=4 PMIX_ID=1 BERTH_TIMEOUT=20 \
		TORCHELASTIC_USE_AGENT_STORE=True \
		run -0 out --mpi=none -np 1 sh -c 'echo "$MINE|$OMPI_MCA_btl"
			env | grep -E "^(SLURM|PMI|BERTH_TIMEOUT|TORCHELASTIC_USE)"; true'
	[ "$(plain)" = 'x y|tcp' ]
}

@test "the environment of a job inside another launcher's task is clean" {
	SLURM_SRUN_COMM_PORT=1 SLURM_GTIDS=1 OMPI_UNIVERSE_SIZE=3 OMPI_COMM_WORLD_SIZE=1 LOCAL_SIZE=9 CROSS_RANK=8 \
		HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.1 HOROVOD_SECRET_KEY=x MPI_LOCALRANKID=7 \
		run -0 out --mpi=none -np 1 sh -c 'env | grep -E "^(SLURM|OMPI|LOCAL_S|CROSS|HOROVOD_(G|SE)|MPI)" | sort'
	[ "$(plain)" = "MPI_LOCALNRANKS=1
MPI_LOCALRANKID=0
OMPI_COMM_WORLD_LOCAL_RANK=0
OMPI_COMM_WORLD_LOCAL_SIZE=1
OMPI_COMM_WORLD_NODE_RANK=0
OMPI_COMM_WORLD_RANK=0
OMPI_COMM_WORLD_SIZE=1
OMPI_MCA_orte_hnp_uri=
OMPI_UNIVERSE_SIZE=1" ]
}

@test "--env-file: quotes, comments, export; -x goes before it" {
	cat > "$T/env" <<- 'E'
		# comment
		A=plain
		export B='single $x "q"'
		C="double 'q' \" \\"  # behind

		D=over
		E=
	E
	run -0 out -np 1 --env-file "$T/env" -x D=x sh -c 'echo "$A|$B|$C|$D|${E-unset}"'
	[ "$(plain)" = "plain|single \$x \"q\"|double 'q' \" \\|x|" ]
}

@test "big environments and command lines arrive" {
	big=$(head -c 100000 /dev/zero | tr '\0' x)
	BIG=$big run -0 out -np 2 sh -c 'echo ${#BIG} ${#0}' "$big"
	[ "$(plain)" = $'100000 100000\n100000 100000' ]
}

@test "the folder: here unless --wdir says another" {
	mkdir "$T/here" "$T/a b"
	cd "$T/here"
	run -0 out -np 1 sh -c 'pwd; echo $PWD'
	[ "$(plain)" = "$T/here"$'\n'"$T/here" ]
	run -0 out -np 1 --wdir "$T/a b" pwd
	[ "$(plain)" = "$T/a b" ]
}

@test "a program is looked for in the ranks' PATH and in their folder" {
	mkdir "$T/bin"
	printf '#!/bin/sh\necho found\n' > "$T/bin/only-here"
	chmod +x "$T/bin/only-here"
	run -0 out -np 1 -x PATH="$T/bin:$PATH" only-here
	[ "$(plain)" = found ]
	run -0 out -np 1 --wdir "$T/bin" ./only-here
	[ "$(plain)" = found ]
}

@test "umask and the soft limits travel" {
	umask 027
	ulimit -Sn 333
	ulimit -Sc 0
	ulimit -Ss 4096
	ulimit -Sl 32
	run -0 out -np 1 bash -c 'umask; ulimit -Sn; ulimit -Sc; ulimit -Ss; ulimit -Sl'
	[ "$(sed 's/^[^:]*://' <<< "$output")" = $'0027\n333\n0\n4096\n32' ]
}

@test "ranks start with default signal handling and three open files, PMI and the liveness pipe" {
	trap '' HUP PIPE
	run -0 out -np 1 grep -E '^Sig(Ign|Blk)' /proc/self/status
	trap - HUP PIPE
	[ "$(plain)" = $'SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000' ]
	run -0 out -np 1 sh -c 'ls /proc/$$/fd'
	[ "$(plain)" = $'0\n1\n1022\n1023\n2' ]
	run -0 out --mpi=none -np 1 sh -c 'ls /proc/$$/fd'
	[ "$(plain)" = $'0\n1\n1023\n2' ]
	run -0 out -np 2 sh -c 'echo $PMI_FD $PMI_RANK $PMI_SIZE; ulimit -n 64; exec sh -c "echo \$PMI_FD"'
	[ "$(plain)" = $'1022\n1022\n1022 0 2\n1022 1 2' ]
	(ulimit -Sn 40 && run -0 out -np 1 sh -c 'ls /proc/$$/fd; echo $PMI_FD' && [ "$(plain)" = $'0\n1\n2\n38\n38\n39' ])
}

@test "each rank leads a process group; their session is not the terminal's" {
	run -0 out -np 2 sh -c 'ps -o pid=,sid=,pgid= -p $$'
	[ "$(plain | wc -l)" = 2 ]
	while read -r pid sid pgid; do
		[ "$pid" = "$pgid" ]
		[ "$sid" != "$(ps -o sid= -p $$ | tr -d ' ')" ]
	done <<< "$(plain)"
	[ "$(plain | awk '{ print $2 }' | sort -u | wc -l)" = 1 ]
}

@test "no value of the environment is on a command line of ours" {
	HIDDEN_TOKEN=in-the-env-4711 run -0 out -np 2 --env-file <(echo FILE_PASS=file-1234) \
		bash -c '[ "$HIDDEN_TOKEN$FILE_PASS" = in-the-env-4711file-1234 ] || echo not forwarded
		p=$PPID names=
		while name=$(cat /proc/$p/comm); do
			names+="$name "
			[ "$name" = runner ] && break
			grep -zqe in-the-env -e file-1234 /proc/$p/cmdline && echo "seen in $name"
			p=$(sed "s/.*) . \([0-9]*\).*/\1/" /proc/$p/stat)
		done
		echo $names'
	[ "$(plain)" = $'berth-agent berth-agent runner\nberth-agent berth-agent runner' ]
}

@test "a hostfile: Open MPI's, MPICH's and PBS' forms, comments and blank lines" {
	printf '# a comment\n\nlocalhost slots=2 max_slots=4 # here\n127.0.0.1:1\n' > "$T/hosts"
	run -0 out --allow-same-host --hostfile "$T/hosts" sh -c 'echo $RANK $NODE_RANK'
	[ "$(plain)" = $'0 0\n1 0\n2 1' ]
	printf 'localhost\nlocalhost\n' > "$T/hosts"
	run -0 out -f "$T/hosts" sh -c 'echo $RANK $LOCAL_RANK/$LOCAL_WORLD_SIZE'
	[ "$(plain)" = $'0 0/2\n1 1/2' ]
}

@test "this machine is known by its addresses: no ssh for it under any name" {
	for name in localhost 127.0.0.1 127.0.0.2 '[::1]' "$(hostname)"; do
		run -0 out -v -H "$name:1" echo x
		[ "$(plain)" = x ]
		grep -q "is up: .* (local)" "$T/err"
	done
}

@test "one machine under two names: an error before any rank, unless --allow-same-host says so" {
	run -2 r -H localhost,127.0.0.1 touch "$T/started"
	says "one machine has several names: 'localhost' and '127.0.0.1'" --allow-same-host
	run -2 r --plan -np 4 -H "127.0.0.1:2,localhost:2,$(hostname):2"
	says "one machine has several names: '127.0.0.1' and 'localhost'"
	[ ! -e "$T/started" ]
	run -0 r --plan -np 2 -H 'localhost:2,127.0.0.1:2' # the second one has no rank
	BERTH_ALLOW_SAME_HOST=1 run -0 out -H localhost,127.0.0.1 sh -c 'echo $NODE_RANK'
	[ "$(plain)" = $'0\n1' ]
}

@test "300 ranks" {
	run -0 out -np 300 sh -c 'echo $RANK'
	[ "$(plain | sort -n)" = "$(seq 0 299)" ]
}

@test "--version and --help print and start nothing" {
	run -0 r --version
	[[ $output == "runner "[0-9]* ]]
	run -0 r --help
	says -np -H
	run -0 r --help --map-by
	says "slot"
	run -0 r --help all
	[ "${#lines[@]}" -gt 40 ]
}

@test "started with SIGCHLD ignored, runner and the agent still see how children end" {
	printf '#!/bin/sh\nexit 3\n' > "$T/ends"
	printf '#!/bin/sh\nexec env --ignore-signal=CHLD %s "$@"\n' "$AGENT" > "$T/ignores"
	chmod +x "$T/ends" "$T/ignores"
	run -240 timeout 30 env --ignore-signal=CHLD "$RUNNER" --launch-agent "$T/ends" true
	says 'status 3'
	run -7 timeout 30 env --ignore-signal=CHLD "$RUNNER" -np 1 sh -c 'exit 7'
	run -7 r -np 1 --launch-agent "$T/ignores" sh -c 'exit 7'
	run -0 timeout 30 env --ignore-signal=CHLD "$RUNNER" -np 1 grep SigIgn /proc/self/status
	[ "$(plain)" = $'SigIgn:\t0000000000000000' ]
}

# A program named ssh, which prints much before it says why it fails.
@test "of what the ssh program prints, the last line is the reason" {
	cat > "$T/ssh" <<- 'E'
		#!/bin/sh
		i=0
		while [ $i -lt 2000 ]; do echo "debug $i"; i=$((i + 1)); done >&2
		echo "Bad configuration option: fatal" >&2
		exit 255
	E
	chmod +x "$T/ssh"
	PATH=$T:$PATH run -1 timeout 30 "$HELPERS/transport_probe" --transport openssh --own-agent "$AGENT" localhost
	says 'E_SSH_PROGRAM' 'Bad configuration option: fatal'
	silent_on debug
	cat > "$T/ssh" <<- E
		#!/bin/sh
		"$HELPERS/fake_agent" < /dev/null
		head -c 1 > /dev/null # the agent was heard
		echo "Warning: something else" >&2
		echo "client_loop: send disconnect: Broken pipe" >&2
		exit 255
	E
	PATH=$T:$PATH run -1 timeout 30 "$HELPERS/transport_probe" --transport openssh --own-agent "$AGENT" --flood 1 localhost
	says 'E_SSH_LOST' 'Broken pipe'
}
