# rounds.bash: one fault, on so many hosts, at one moment, with one kind of rank; and all that has
# to hold after it.  Sourced after inject.bash.
#
#   round FAULT HOSTS MOMENT RANKS   on n1..nHOSTS; says what is wrong, and fails.  Sets cause_ms,
#                                    from the blow to the first line of runner's own ("" for none)
#   outside_bats                     gives a script what jobs.bash expects of bats
#   pick WORD...                     one of them, by $RANDOM
# shellcheck shell=bash disable=SC1090,SC2016,SC2034,SC2046,SC2086,SC2154,SC2317

pick() {
	local words=("$@")
	echo "${words[RANDOM % $#]}"
}

pause() { # MS, without a process
	local never
	exec {never}<> <(:)
	read -r -t "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))" -u "$never" || true
	exec {never}<&-
}

# First line of runner's own, warnings apart, into $said.
own_line() {
	while IFS= read -r said; do
		case $said in 'runner: warning: '*) ;; 'runner: '*) return ;; esac
	done < "$T/err"
	said=''
	return 1
}

ready_ranks() { # how many, into $ready
	local line
	ready=0
	while IFS= read -r line; do
		case $line in *'>:ready'*) ready=$((ready + 1)) ;; esac
	done < "$T/out"
}

wrong() {
	echo "$@"
	sed 's/^/  err: /' "$T/err" | head -20
	return 1
}

all_ready() {
	local i
	for ((i = 0; i < 1200; i++)); do
		ready_ranks
		[ "$ready" -lt "$np" ] || return 0
		over && break
		pause 50
	done
	wrong "$ready of $np ranks are ready"
}

rank_pid() { sed -n "s/.*>:ready$1 //p" "$T/out"; }

# The job of a round, which FAULT needs to be like this.
start_round() { # FAULT HOSTS MOMENT RANKS
	local each=2 slow='' user=''
	case $4 in *.py) each=1 ;; esac
	[ "$3" != ending ] || slow=1
	np=$(($2 * each))
	fault_ready "$1"
	[ "$4" != bomb ] || user=alice@
	start -H "${user}n[1-$2]:$each" ${user:+-i /vc/ssh/alice} --kill-grace 2 -x "SLOW=$slow" \
		$(fault_options "$1") $(rank_command "$4")
}

fail_rank_0() {
	local pid0
	pid0=$(rank_pid 0)
	on n1 kill -USR2 "$pid0"
	while on n1 test -e "/proc/$pid0"; do :; done # its agent, too, has seen it
}

# A job that the fault does not end, once all its ranks are there.
end_unhurt() { # FAULT
	case $1 in
	rank_stopped) own=143; signal TERM || true ;; # it may be over by now
	loss | delay) pause 1000; signal USR1 ;;
	*) signal USR1 ;;
	esac
}

# To the first line of runner's own, or its end.
watch() { # FAULT MOMENT
	local asked='' now looks=0
	case $1,$2,$own in
	rank_stopped,ending,0) asked=yes; over || end_unhurt "$1" ;;
	*,ending,*) asked=yes ;;
	*,start,* | loss,* | delay,* | disk_full,* | rank_stopped,*) ;;
	*) asked=yes ;;
	esac
	until own_line; do
		if over; then
			own_line || return 0
			break
		fi
		if [ -z "$asked" ]; then
			ready_ranks
			looks=$((looks + 1)) # a rank stopped before it met the others keeps all of them
			if [ "$ready" -ge "$np" ] || [ "$1,$looks" = rank_stopped,500 ]; then
				asked=yes
				end_unhurt "$1"
			fi
		fi
		pause 10
	done
	now=$EPOCHREALTIME
	if [ -z "$asked" ] && [ "$1" = disk_full ]; then # that ends nothing
		all_ready && end_unhurt "$1"
	fi
	cause_ms=$(((${now/./} - ${blow_at/./}) / 1000))
}

check_round() { # FAULT HOST
	local h
	[[ $status =~ ^($want_status)$ ]] || { wrong "status $status, not $want_status"; return; }
	own_line
	[[ $said =~ $want_line ]] || { wrong "first line: $said, not $want_line"; return; }
	[ -n "$want_line" ] || [ -z "$said" ] || [ "$want_status" != 0 ] || { wrong "says: $said"; return; }
	if [ "$status" = 0 ]; then want_lost=''; fi
	[ -z "$want_lost" ] || err_says "$want_lost did not confirm that the job's processes are gone" || return
	for h in $hosts; do
		[ "$h" != "$2" ] || [ -n "$reached" ] || continue # who is frozen would not answer
		[ "$h" = "$want_lost" ] || on "$h" sh -c 'rm -rf /tmp/pymp-*' # Python's own, which a killed DataLoader leaves
		all_clean "$h" || { wrong "left on $h"; return; }
	done
	mend "$1" "$2"
	on "$2" sh -c 'rm -rf /tmp/pymp-*'
	all_clean n0 $hosts || wrong "left at last"
}

# What the job comes to without the fault: it ends in one of two ways while the fault comes.
begin_ending() { # RANKS
	if [ "$1" != bomb ] && ((RANDOM % 2)); then
		fail_rank_0
		own=7 line="^runner: rank 0 on 'n1' .*exited with status 7"
		pause $((50 + RANDOM % 300))
	else
		signal USR1
		pause $((RANDOM % 1300))
	fi
}

round() { # FAULT HOSTS MOMENT RANKS
	local fault=$1 moment=$3 hit=yes own=0 line='' np reached=yes ready said
	hosts=$(seq -f 'n%.0f' "$2") cause_ms=''
	victim_host=n$((RANDOM % $2 + 1))
	[ "$moment" != ending ] || victim_host=n$((RANDOM % ($2 - 1) + 2))
	start_round "$@"
	case $moment in
	start) pause $((RANDOM % 300)) ;;
	running) all_ready || return ;;
	ending) all_ready && begin_ending "$4" || return ;;
	esac
	PATIENCE_S=$([ "$moment" = ending ] && echo 1 || echo 10)
	inject "$fault" "$victim_host" || hit=''
	watch "$fault" "$moment"
	status_of_job 60 || return
	if [ "$moment" = ending ] && [ -z "$hit" ]; then # it was over by then
		want_status=${own/143/0} want_line=$line want_lost=''
	elif [ "$moment" = ending ] && [ "$own" != 7 ]; then # it may be over, or not
		expect "$fault" "$victim_host" running "$own"
		want_status="0|$want_status" want_line="^$|$want_line"
	else
		[ -n "$hit" ] || { wrong "nothing to hit"; return; }
		expect "$fault" "$victim_host" "$moment" "$own" "$line"
	fi
	case $fault,$moment in
	host_cut,* | host_frozen,* | partitioned,* | runner_and_agent_killed,*) reached='' ;;
	agent_stopped,start) reached='' ;; # without a job there is nothing to find it by: it ends once it goes on
	esac
	check_round "$fault" "$victim_host"
}

outside_bats() { # FOLDER of the tests
	load() { . "$ROOT_OF_TESTS/cluster/$1.bash"; }
	bats_require_minimum_version() { :; }
	run() { echo "run is bats' own" >&2; exit 2; }
	BATS_FILE_TMPDIR=$(mktemp -d)
	BATS_TEST_TMPDIR=$BATS_FILE_TMPDIR BATS_RUN_TMPDIR=$BATS_FILE_TMPDIR
	ROOT_OF_TESTS=$1
}
