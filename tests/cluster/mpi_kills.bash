# mpi_kills.bash: one part of an MPI job is killed at a random moment, and all that has to hold after it.
# Sourced after jobs.bash, mpis.bash, inject.bash and rounds.bash.
#
#   kill_round PROGRAM VICTIM MOMENT   PROGRAM: a path of mpi_programs; VICTIM: rank, agent, server or
#                                      runner; MOMENT: init, loop or finalize.  Says what is wrong, and
#                                      fails.  Sets
#     phase       where the victim was, or the first of the ranks of its host: start (there was no
#                 rank), init, loop, finalize or end; missed: it was gone
#     end_ms      from the kill to the end of runner
#     clean_ms    from the kill until nothing is left on any host
#     left        how many files the MPI itself has left, as it does under any launcher
# shellcheck shell=bash disable=SC2016,SC2034,SC2086,SC2154 # code for hosts; the caller's variables

END_MOST_MS=${END_MOST_MS:-2000}
PHASES=$STATE/t/phases

# For a bash on the victim's host: waits for MOMENT, then MS; says when it kills, and whom.
KILL_AT='
exec {never}<> <(:)
nap() { read -r -t "$(printf "%d.%03d" $(($1 / 1000)) $(($1 % 1000)))" -u "$never" || true; }
victims() {
	case $1 in
	rank) pgrep -x "$name" ;;
	agent) agents | tail -n +2 ;;
	server) pgrep -x berth-pmix ;;
	runner) pgrep -x runner ;;
	esac
}
begun() { case $moment in init) [ -n "$(victims "$1")" ] ;; *) [ "$(cat "$folder"/[0-9] 2> /dev/null | grep -c ^loop)" = 4 ] ;; esac; }
victim=$1 name=$2 moment=$3 ms=$4 folder=/vc/t/phases
for ((i = 0; i < 1500; i++)); do
	! begun "$victim" || break
	nap 10
done
[ $moment != finalize ] || : > $folder/leave
nap $ms
p=$(victims "$victim" | shuf -n 1)
[ -n "$p" ] || exit
echo $EPOCHREALTIME $p
kill -KILL $p'

MOMENT_MS='init 400 loop 200 finalize 400' # the most that it waits

# Open MPI 5 has a folder of its own where it found no PMIx server, and an open_mpi.0000 for a moment.
files_of_mpi() { # HOST: those that the MPI has left; they go
	on "$1" sh -c 'pgrep -x "ompi.|mpich." > /dev/null || for f in /dev/shm/ucx_shm_posix_* /dev/shm/mpich_sh* /dev/shm/open_mpi.* \
		/tmp/ompi.*; do
		[ ! -e "$f" ] || { rm -rf "$f"; echo "$f"; }
	done'
}

all_gone() {
	local h
	for h in n1 n2; do left=$((left + $(files_of_mpi $h | wc -l))); done
	for h in n0 n1 n2; do clean $h || return; done
}

# The earliest of what the ranks in these files were at.
phase_of() {
	local at last
	last=$(for file; do tail -n 1 "$file"; done | cut -d ' ' -f 1)
	for at in init loop finalize end; do
		phase=$at
		! grep -qx "$at" <<< "$last" || return 0
	done
	phase=start
}

victim_files() { # VICTIM PID HOST
	local here='[01]'
	[ "$3" = n1 ] || here='[23]'
	case $1 in
	rank) grep -lx "init $2" "$PHASES"/$here ;;
	runner) ls "$PHASES"/[0-3] ;;
	*) ls "$PHASES"/$here ;;
	esac 2> /dev/null
}

# VICTIM HOST PID: what has to come of it.
expected() {
	local of="$1 $phase"
	case $1 in
	rank) want_status=137 want_line="^runner: rank [0-3] on '$2' \\(pid $3\\) was ended by SIGKILL" ;;
	agent) want_status=241 want_line="^runner: $2: (lost its agent|connection lost)" ;;
	server) # or a rank ended before its agent saw it
		want_status='[1-9][0-9]*' want_line="^runner: $2: the PMIx server of the ranks is lost: its process has ended$"
		want_line+="|^runner: rank [0-3] on '$2' \\(pid [0-9]+\\) (exited with status [0-9]+ after it )?lost its PMIx server: its process has ended$" ;;
	runner) want_status=137 want_line='^$' ;;
	esac
	case $of in
	"agent start" | "server start") want_status="$want_status|240|0" want_line="$want_line|^runner: $2: |^$" ;;
	*" missed" | "rank end" | "agent end" | "server end" | "server finalize") want_status="$want_status|0" want_line="$want_line|^$" ;;
	esac
}

kill_round() {
	local program=$1 victim=$2 moment=$3 host ms at='' pid_of_victim=''
	host=n$((RANDOM % 2 + 1)) # a $(pick) would not go on in $RANDOM
	[ "$victim" != runner ] || host=n0
	ms=${MOMENT_MS#*"$moment "}
	ms=$((RANDOM % ${ms%% *}))
	phase='' end_ms='' clean_ms='' left=0
	rm -rf "$PHASES"
	mkdir -m 1777 "$PHASES"
	start -q --no-tag -H n1:2,n2:2 "$program" phases /vc/t/phases
	read -r at pid_of_victim <<< "$(in_host $host "$KILL_AT" $victim "$(basename "$program")" $moment $ms)"
	if [ -n "$at" ]; then
		# shellcheck disable=SC2046 # words
		phase_of $(victim_files $victim "$pid_of_victim" $host)
	else
		phase=missed at=$EPOCHREALTIME
	fi
	status_of_job 30 || { wrong "$victim on $host after $ms ms, in $phase"; return; }
	end_ms=$(((${EPOCHREALTIME/./} - ${at/./}) / 1000))
	expected $victim $host "$pid_of_victim"
	own_line || true
	[[ $status =~ ^($want_status)$ ]] || { wrong "$victim on $host after $ms ms, in $phase: status $status, not $want_status"; return; }
	[[ $said =~ $want_line ]] || { wrong "$victim on $host after $ms ms, in $phase: $said, not $want_line"; return; }
	[ "$end_ms" -le "$END_MOST_MS" ] || { wrong "$victim on $host after $ms ms, in $phase: it ended after $end_ms ms"; return; }
	wait_for all_gone || { wrong "$victim on $host after $ms ms, in $phase: left"; all_clean n0 n1 n2; return 1; }
	clean_ms=$(((${EPOCHREALTIME/./} - ${at/./}) / 1000))
}
