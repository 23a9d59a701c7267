#!/usr/bin/env bats
# limit_s: 600
# takes_s: 128
# more: what waits for deadlines
# The ssh and openssh transports against real sshds: keys, configuration, refusal, silence,
# log-in scripts, and agents that are missing, old, foreign, or cannot run.
# shellcheck disable=SC2016,SC2030,SC2031

load ../cli/common

PROBE=$HELPERS/transport_probe FAKE=$HELPERS/fake_agent

setup_file() {
	cluster_up 3
	# an agent that only n0 has, and one of another version
	[ -n "$(why_no_cluster)" ] || on n0 cp "$HELPERS/fake_agent" /opt/berth-agent
	gcc -std=c11 -D_GNU_SOURCE -DBERTH_VERSION='"9.9.9"' -I"$ROOT" -o "$BATS_FILE_TMPDIR/other" \
		"$ROOT"/tests/helpers/fake_agent.c "$ROOT"/common/{buf,err,str,wire}.c
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
}

# What a test did to a host goes with it.
teardown() {
	[ -z "$(why_no_cluster)" ] || return 0
	local h
	on n0 sh -c 'cd; rm -rf .ssh/config .ssh/known_hosts .ssh/*.pub; install -m 600 /vc/ssh/root .ssh/id_ed25519
		cp /vc/etc/ssh_known_hosts /etc/ssh/ssh_known_hosts; sed -i /test$/d /etc/ssh/ssh_config'
	if [ -z "$BATS_TEST_COMPLETED" ]; then # a test that passes has ended its host's trouble itself
		"$VCLUSTER" thaw n1
		"$VCLUSTER" netem n1 up
		on n1 test ! -e /run/no-sshd || "$VCLUSTER" sshd n1 start
	fi
	for h in n1 n2 n3; do mended $h & done 3>&- 2> /dev/null
	wait
	return 0
}

mended() { # HOST
	! on "$1" sh -c 'umount /root/.cache /run/user /dev/shm/x 2> /dev/null; ip route flush type blackhole
		cd; rm -rf .cache /home/alice/.cache /opt/berth-agent /usr/local/bin/[a-z]* /run/user /dev/shm/berth-*
		cp /etc/skel/.bashrc .; grep -q "^bob:.*/bin/bash$" /etc/passwd || usermod -s /bin/bash bob > /dev/null
		[ -e /etc/ssh/vc_sshd.d/test.conf ] && rm -f /etc/ssh/vc_sshd.d/*' || "$VCLUSTER" sshd "$1" reread
}

probe() { # ARGUMENT...: same path everywhere unless --own-agent says otherwise
	on n0 timeout 60 "$PROBE" --timeout $((30 * ${SLOW:-1})) --own-agent "$FAKE" "$@"
}

client() { # LINE...: ssh_config of n0's root
	printf '%s\n' "$@" | on n0 sh -c 'cat > ~/.ssh/config'
}

server() { # HOST LINE...: more of its sshd_config
	local h=$1; shift
	printf '%s\n' "$@" | on "$h" sh -c 'cat > /etc/ssh/vc_sshd.d/test.conf'
	"$VCLUSTER" sshd "$h" reread
}

no_failure() {
	says ', 0 failed,'
}

@test "an agent at the same path is started, on all hosts at once" {
	local h same=/opt/same/fake_agent # this tree may lie below /tmp, from where none is started
	for h in n0 n1 n2 n3; do
		on "$h" install -D "$FAKE" $same
	done
	for t in ssh openssh; do
		run -0 probe --transport $t --own-agent $same n1,n2,n3
		says 'n1 up' 'n2 up' 'n3 up'
		silent_on note
	done
}

# bats test_tags=all
@test "what is sent and received is whole, beyond every window" {
	for t in ssh openssh; do
		run -0 probe --transport $t --flood 30000000 --feed 30000000 n1,n2
		no_failure
	done
}

# ---- host keys ----

@test "an unknown host key is refused, with its fingerprint" {
	on n0 rm /etc/ssh/ssh_known_hosts
	run -1 probe n1
	says 'E_SSH_HOSTKEY root@n1:22: its host key is not in known_hosts: ssh-ed25519 SHA256:' \
		'hint compare' '--accept-new-hosts'
	run -1 probe --transport openssh n1
	says 'E_SSH_HOSTKEY n1'
}

@test "--accept-new-hosts takes an unknown key, and remembers it" {
	for t in ssh openssh; do
		on n0 sh -c 'rm -f /etc/ssh/ssh_known_hosts ~/.ssh/known_hosts'
		run -0 probe --transport $t --accept-new-hosts n1
		run -0 probe --transport $t n1
	done
}

@test "StrictHostKeyChecking accept-new in ssh_config is obeyed" {
	on n0 rm /etc/ssh/ssh_known_hosts
	client 'Host n1' 'StrictHostKeyChecking accept-new'
	run -0 probe n1
	run -1 probe n2
	says E_SSH_HOSTKEY
}

@test "a changed host key is refused even with --accept-new-hosts" {
	on n0 sh -c 'sed -n s/^n1,[^\ ]*/n2/p /etc/ssh/ssh_known_hosts > /tmp/kh; mv /tmp/kh /etc/ssh/ssh_known_hosts'
	for t in ssh openssh; do
		run -1 probe --transport $t --accept-new-hosts n2
		says E_SSH_HOSTKEY_CHANGED 'ssh-keygen -R'
	done
}

@test "known_hosts that cannot be written is said, and stops nobody" {
	on n0 sh -c 'rm /etc/ssh/ssh_known_hosts; mkdir ~/.ssh/known_hosts'
	run -0 probe --accept-new-hosts n1
	says 'n1 note its host key could not be added to /root/.ssh/known_hosts: Is a directory'
}

@test "a changed host key that StrictHostKeyChecking accepts is said" {
	on n0 sh -c 'sed -n s/^n1,[^\ ]*/n2/p /etc/ssh/ssh_known_hosts > /tmp/kh; mv /tmp/kh /etc/ssh/ssh_known_hosts'
	client 'StrictHostKeyChecking no'
	for t in ssh openssh; do
		run -0 probe --transport $t n2
		says 'n2 note its host key is not the one in known_hosts'
	done
	on n0 sh -c 'sed "s/^n2/@revoked n1/; s/ssh-ed25519.*//" /etc/ssh/ssh_known_hosts | tr -d "\n" > /tmp/kh
		cut -d " " -f 1,2 /vc/keys/n1.pub >> /tmp/kh; mv /tmp/kh /etc/ssh/ssh_known_hosts'
	run -0 probe n1
	says 'n1 note its host key is revoked'
}

@test "a revoked host key is refused: the real ssh reads that line" {
	on n0 sh -c 'sed -n "s/^n1,[^ ]*/@revoked n1/p" /etc/ssh/ssh_known_hosts > ~/.ssh/known_hosts'
	run -1 probe n1,n2
	says 'n1 through openssh' '@revoked' 'n2 up' 'n1 E_SSH_HOSTKEY'
	silent_on 'n1 up'
}

# ---- users and their keys ----

@test "no key that fits: what the host takes is said" {
	on n0 sh -c 'ssh-keygen -q -t ed25519 -N "" -f ~/.ssh/new; mv ~/.ssh/new ~/.ssh/id_ed25519'
	for t in ssh openssh; do
		run -1 probe --transport $t n1
		says E_SSH_AUTH publickey
	done
}

@test "-i names the key, and user@host the user" {
	run -0 probe -i /vc/ssh/alice alice@n1
	run -0 probe --transport openssh -i /vc/ssh/alice alice@n1
	run -1 probe -i /vc/ssh/alice bob@n1
	says 'E_SSH_AUTH bob@n1:22'
}

@test "-i with a file that is no key, or that is missing" {
	on n0 sh -c 'echo "no key" > /tmp/none; chmod 600 /tmp/none'
	run -1 probe -i /tmp/none n1
	says E_SSH_IDENTITY "'/tmp/none'"
	run -1 probe -i /nowhere n1
	says E_SSH_IDENTITY 'No such file'
}

@test "a private key that others may read is not used, as in ssh" {
	on n0 chmod 640 /root/.ssh/id_ed25519
	run -1 probe n1
	says 'n1 through openssh' 'n1 E_SSH_AUTH' 'Load key "/root/.ssh/id_ed25519": bad permissions' 'chmod 600'
	on n0 sh -c 'cp /vc/ssh/root /tmp/key; chmod 644 /tmp/key'
	run -1 probe -i /tmp/key n1
	says 'n1 through openssh' 'Load key "/tmp/key": bad permissions' 'chmod 600'
}

@test "a configuration that others may write is refused by ssh, which says so" {
	client 'User root'
	on n0 chmod 666 /root/.ssh/config
	run -1 probe n1
	says 'n1 through openssh' 'n1 E_SSH_PROGRAM' 'Bad owner or permissions on /root/.ssh/config'
}

@test "a first key that the host does not take, or that has a passphrase: the next one" {
	on n0 sh -c 'cd ~/.ssh; mv id_ed25519 id_ecdsa; ssh-keygen -q -t ed25519 -N "" -f id_ed25519'
	run -0 probe n1
	on n0 sh -c 'cd ~/.ssh; cp id_ecdsa id_ed25519; ssh-keygen -q -p -N secret -f id_ed25519'
	run -0 probe n1
	on n0 sh -c 'cd ~/.ssh; rm id_ed25519; echo "no key" > id_ed25519'
	run -0 probe n1
	on n0 sh -c 'rm ~/.ssh/id_*' # teardown brings the usual one back
}

@test "keys of ssh-agent are used" {
	on n0 mv /root/.ssh/id_ed25519 /tmp/key
	run -0 on n0 ssh-agent sh -c "ssh-add -q /tmp/key; exec $PROBE --own-agent $FAKE n1"
}

@test "a host that takes hostbased is tried once more by the real ssh" {
	on n0 sh -c 'rm -f ~/.ssh/id_ed25519 /etc/ssh/ssh_host_*
		cp /etc/ssh/vc_host_key /etc/ssh/ssh_host_ed25519_key
		cp /vc/keys/n0.pub /etc/ssh/ssh_host_ed25519_key.pub
		printf "%s # test\n" "HostbasedAuthentication yes" "EnableSSHKeysign yes" >> /etc/ssh/ssh_config'
	on n1 sh -c 'echo n0 root > ~/.shosts; chmod 600 ~/.shosts'
	server n1 'HostbasedAuthentication yes' 'HostbasedUsesNameFromPacketOnly yes' 'IgnoreRhosts no'
	run -0 probe --transport ssh n1
	says 'n1 up'
}

@test "-p names the port" {
	server n1 'Port 22' 'Port 2222'
	for t in ssh openssh; do
		run -0 probe --transport $t -p 2222 --accept-new-hosts n1
	done
	run -1 probe --timeout 4 --transport ssh -p 2223 n1
	says 'E_SSH_CONNECT root@n1:2223: cannot connect: Connection refused'
}

# ---- ssh_config ----

@test "ssh_config: alias, user, key" {
	client 'Host box' 'HostName n1' 'User alice' 'IdentityFile /vc/ssh/alice'
	run -0 probe box
	says 'box up'
}

@test "ssh_config: ProxyJump, also for many hosts behind one" {
	client 'Host n1 n2' 'ProxyJump n3' 'Host box' 'HostName n1' 'User alice' 'IdentityFile /vc/ssh/alice'
	server n3 'MaxStartups 4:100:4'
	# the probe ends if the environment changes while the name of box is looked up
	run -0 probe n1,n2,n1,box,n2,n1
	no_failure
}

@test "ssh_config: ProxyJump to a host that answers the jump host alone" {
	client 'Host n1' 'ProxyJump n3'
	on n1 ip route add blackhole "$(on n1 awk '$2 == "n0" { print $1 }' /etc/hosts)"
	for t in ssh openssh; do
		run -0 probe --transport $t n1
		says 'n1 up'
	done
}

@test "ssh_config: a changed key of the jump host is named; one that is accepted, too" {
	client 'Host n1' 'ProxyJump n3'
	on n0 sh -c 'sed -n "/^n1,/{p; s/^n1,[^ ]*/n3/p}" /etc/ssh/ssh_known_hosts > /tmp/kh
		mv /tmp/kh /etc/ssh/ssh_known_hosts'
	for t in ssh openssh; do
		run -1 probe --transport $t n1
		says 'Host key for n3 has changed'
	done
	client 'Host n1' 'ProxyCommand sh -c "echo IDENTIFICATION HAS CHANGED >&2; exec ssh -W %h:%p n2"'
	on n0 cp /vc/etc/ssh_known_hosts /etc/ssh/
	run -0 probe n1
	says 'n1 note the host key of its proxy is not the one in known_hosts'
}

@test "ssh_config: ProxyCommand has its tokens, and ends with the connection" {
	client 'Host n1' 'HostName n1' 'User alice' 'IdentityFile /vc/ssh/alice' \
		'ProxyCommand sh -c "echo %n %h %p %r %% > /tmp/tokens; exec ssh -W %h:%p root@n3"' \
		'Host n2' 'ProxyCommand ssh -W %h:%p %z'
	run -0 probe n1
	says 'n1 up'
	[ "$(on n0 cat /tmp/tokens)" = 'n1 n1 22 alice %' ]
	no_proxy() { ! on n0 pgrep -f 'ssh -W' > /dev/null; }
	wait_for no_proxy
	run -1 probe n2 # a token that ssh does not know either
	says 'n2 E_SSH_PROGRAM'
}

# bats test_tags=all
@test "ssh_config: ProxyJump to a host that refuses" {
	client 'Host n1' 'ProxyJump eve@n3'
	run -1 probe --timeout 8 n1
	says 'n1 E_SSH_CONNECT root@n1:22'
}

@test "ssh_config: what libssh cannot do goes to the real ssh, with a reason" {
	client 'Host n1' 'HostKeyAlias n1' 'Host n2' 'CertificateFile /nowhere-cert.pub'
	run -0 probe n1,n2,n3
	says 'n1 through openssh: ' 'hostkeyalias' 'n2 through openssh: ' 'certificatefile'
	silent_on 'n3 through'
}

@test "a name that nobody knows" {
	run -1 probe --timeout 4 nosuchhost
	says E_SSH_RESOLVE "'nosuchhost'"
	run -1 probe --timeout 4 --transport openssh nosuchhost
	says E_SSH_RESOLVE
}

# ---- hosts in trouble ----

@test "a refused connection is tried again until sshd is there" {
	"$VCLUSTER" sshd n1 stop
	(sleep 1; "$VCLUSTER" sshd n1 start) 3>&- &
	run -0 probe n1,n2
	wait
}

# bats test_tags=all
@test "a refused connection is an error at the deadline" {
	"$VCLUSTER" sshd n1 stop
	run -1 probe --timeout 4 n1
	says 'E_SSH_CONNECT root@n1:22: cannot connect: Connection refused'
	run -1 probe --timeout 8 --transport openssh n1 # time for one ssh at least
	says 'E_SSH_CONNECT' 'Connection refused'
	"$VCLUSTER" sshd n1 start
}

@test "a host that hangs holds up no other" {
	"$VCLUSTER" freeze n1
	run -1 probe --timeout 5 n1,n2
	"$VCLUSTER" thaw n1
	says 'n2 up' 'E_START_TIMEOUT root@n1:22' 'sent nothing'
}

@test "a host without power" {
	"$VCLUSTER" netem n1 down
	run -1 probe --timeout 1 n1
	"$VCLUSTER" netem n1 up
	says 'E_START_TIMEOUT root@n1:22' 'nothing answers'
}

@test "32 starts at one address stay below sshd's MaxStartups" {
	local hosts
	hosts=$(printf 'n1,%.0s' {1..32})
	run -0 probe -q "${hosts%,}"
	no_failure
	server n1 'MaxStartups 2:100:2' # and where it is lower still, they come back
	run -0 probe -q "${hosts%,}"
	no_failure
}

flooding() { on n1 sh -c 'awk "/^wchar/ {exit \$2 < 1000000}" "/proc/$(pgrep -x fake_agent)/io"' 2> /dev/null; }

# bats test_tags=all
@test "a connection that is cut" {
	for t in ssh openssh; do
		(wait_for flooding; on n1 sh -c 'kill -KILL $(pgrep -f "^sshd: root@notty")') 3>&- &
		run -1 probe --transport $t --flood 100000000000 n1
		wait
		says E_SSH_LOST
	done
}

# ---- log-in scripts and shells ----

@test "what a log-in script prints is stripped, and reported" {
	on n1 sh -c 'echo "echo Welcome to the cluster; echo oops >&2" > ~/.bashrc'
	for t in ssh openssh; do
		run -0 probe --transport $t n1
		says 'n1 up' "n1 note the login there prints 'Welcome to the cluster'"
		run -0 probe --transport $t --own-agent /opt/berth-agent n1
		says 'n1 up' "prints 'Welcome to the cluster'"
	done
}

@test "a log-in that prints and starts nothing" {
	on n1 sh -c 'echo "echo Sorry, maintenance; exit 0" > ~/.bashrc'
	for t in ssh openssh; do
		run -1 probe --transport $t n1
		says E_LOGIN_NOISE "'Sorry, maintenance'"
	done
	on n1 sh -c 'echo "printf Project?; exec sleep 60" > ~/.bashrc'
	run -1 probe --timeout 5 n1
	says E_LOGIN_NOISE "'Project?'"
	on n1 sh -c 'echo "yes" > ~/.bashrc'
	run -1 probe n1
	says E_LOGIN_NOISE
}

@test "an account without a shell" {
	on n1 usermod -s /usr/sbin/nologin bob
	for t in ssh openssh; do
		run -1 probe --transport $t -i /vc/ssh/bob bob@n1
		says E_LOGIN_SHELL 'status 1' 'not available'
	done
}

@test "any login shell: dash, csh, fish, zsh" {
	local shell some=
	for shell in /bin/dash /bin/tcsh /usr/bin/fish /bin/zsh /bin/busybox; do
		[ -x $shell ] || continue
		some+=" $shell"
		[ $shell = /bin/busybox ] && shell=/usr/local/bin/sh && on n1 cp /bin/busybox $shell
		on n1 usermod -s $shell bob
		on n1 rm -rf /home/bob/.cache
		run -0 probe -i /vc/ssh/bob bob@n1
		on n1 rm -rf /home/bob/.cache # which that one may have been sent to
		run -0 probe -i /vc/ssh/bob --own-agent /opt/berth-agent bob@n1
		says 'the agent was sent'
		run -0 probe -i /vc/ssh/bob --own-agent /opt/berth-agent bob@n1
		silent_on 'the agent was sent'
	done
	echo "#$some" >&3
}

@test "a path with spaces and quotes is one word there" {
	on n1 sh -c 'mkdir -p "/opt/a b"; cp "$1" "/opt/a b/it'\''s \$x"' sh "$FAKE"
	run -0 probe --launch-agent "/opt/a b/it's \$x" n1
}

# ---- agents ----

@test "an agent that is nowhere is sent, and is there the next time" {
	for t in ssh openssh; do
		on n1 rm -rf /root/.cache
		run -0 probe --transport $t --own-agent /opt/berth-agent n1
		says 'n1 up' 'n1 note the agent was sent'
		run -0 on n1 sh -c 'ls ~/.cache/berth; stat -c %a ~/.cache/berth ~/.cache/berth/*'
		says agent- $'\n700\n700'
		run -0 probe --transport $t --own-agent /opt/berth-agent n1
		says 'n1 up'
		silent_on note
	done
}

@test "a damaged copy in the cache is sent anew" {
	run -0 probe --own-agent /opt/berth-agent n1
	on n1 sh -c 'for f in ~/.cache/berth/agent-*; do echo x >> "$f"; done'
	run -0 probe --own-agent /opt/berth-agent n1
	says 'n1 note the agent was sent'
}

@test "hosts that share a home are sent it at the same time without harm" {
	run -0 probe -i /vc/ssh/alice --own-agent /opt/berth-agent alice@n1,alice@n2,alice@n3
	no_failure
	run -0 on n1 ls /home/alice/.cache/berth
	[ "${#lines[@]}" = 1 ]
}

@test "an agent in PATH is found" {
	on n1 cp "$FAKE" /usr/local/bin/berth-agent
	run -0 probe --no-push --own-agent /opt/berth-agent n1
	silent_on note
}

@test "an agent of another version is passed over" {
	on n1 tee /opt/berth-agent < "$BATS_FILE_TMPDIR/other" > /dev/null
	on n1 tee /usr/local/bin/berth-agent < "$BATS_FILE_TMPDIR/other" > /dev/null
	on n1 chmod 755 /opt/berth-agent /usr/local/bin/berth-agent
	for t in ssh openssh; do
		on n1 rm -rf /root/.cache
		run -1 probe --transport $t --no-push --own-agent /opt/berth-agent n1
		says E_AGENT_OTHER 'version 9.9.9 (protocol'
		run -0 probe --transport $t --own-agent /opt/berth-agent n1
		says 'n1 up 0' 'n1 note the agent was sent'
	done
	run -1 probe --launch-agent /opt/berth-agent n1
	says E_AGENT_OTHER 9.9.9
}

@test "--no-push and --launch-agent send nothing" {
	run -1 probe --no-push --own-agent /opt/berth-agent n1
	says E_AGENT_MISSING "'/opt/berth-agent'" 'in PATH' "'~/.cache/berth'"
	run -1 probe --launch-agent /nowhere/agent n1
	says E_AGENT_MISSING "'/nowhere/agent'"
	run -1 probe --launch-agent /bin/false n1
	says E_AGENT_START 'status 1'
}

# ---- agents that others can replace ----

# What bob puts in the way of n0's agent, as a program that says that it ran.
plant() { # FILE, on n1
	on n0 sh -c 'mkdir -p "${1%/*}"; cp "$2" "$1"' sh "$1" "$FAKE"
	as bob n1 sh -c 'mkdir -p "${1%/*}"; printf "#!/bin/sh\nid >> /tmp/planted\nexit 1\n" > "$1"
		chmod 755 "$1"' sh "$1"
}

open_scratch() { # on n1: a folder like /tmp, for what anybody has
	on n1 sh -c 'rm -rf /scratch /tmp/planted; mkdir -m 1777 /scratch'
}

@test "an agent that another user planted at the same path never runs: root and a user" {
	local path victim t
	for path in /scratch/berth/bin/berth-agent /scratch/berth-agent; do
		open_scratch
		plant $path
		for victim in root alice; do
			for t in ssh openssh; do
				on n1 rm -rf /root/.cache /home/alice/.cache
				run -0 probe --transport $t -i /vc/ssh/$victim --own-agent $path $victim@n1
				says 'n1 note the agent was sent' "'$path' there was not started: another user can replace it"
				run -0 probe --transport $t -i /vc/ssh/$victim --own-agent $path $victim@n1
				silent_on 'was sent'
				run -1 probe --transport $t -i /vc/ssh/$victim --launch-agent $path $victim@n1
				says 'E_AGENT_UNSAFE' "'$path'"
			done
			on n1 rm -rf /root/.cache /home/alice/.cache
			run -1 probe -i /vc/ssh/$victim --no-push --own-agent $path $victim@n1
			says 'E_AGENT_MISSING' "'$path' (which another user can replace)"
		done
	done
	run -1 on n1 cat /tmp/planted
}

@test "a whole job with a planted agent on its way" {
	open_scratch
	plant /scratch/berth/berth-agent
	on n0 cp "$AGENT" "$RUNNER" /scratch/berth/
	run -0 on n0 /scratch/berth/runner -q -np 2 -H n1:2 hostname
	[ "$output" = "[0]<stdout>:n1
[1]<stdout>:n1" ] || [ "$output" = "[1]<stdout>:n1
[0]<stdout>:n1" ]
	run -1 on n1 cat /tmp/planted
}

# The path of n0's agent on n1: which folder, or agent, of whose and of which mode stops it.
@test "an agent is started where only root or the user can write, and else by its SHA-256" {
	local path='/opt/a b/c/berth-agent' row what
	on n0 sh -c 'mkdir -p "/opt/a b/c"; cp "$1" "$2"' sh "$FAKE" "$path"
	while IFS='|' read -r row what; do
		on n1 sh -c 'rm -rf "/opt/a b" /opt/other /root/.cache; mkdir -p "/opt/a b/c" && cp "$1" "$2" &&
			cd "/opt/a b" && chmod -R 755 . && eval "$3"' sh "$FAKE" "$path" "$row"
		run -0 probe --own-agent "$path" n1
		echo "# $row: $what"
		case $what in
		direct) silent_on note ;;
		checked) says 'was not started'; silent_on 'was sent' ;;
		sent) says 'was not started' 'was sent' ;;
		named) says 'was not started'; run -0 probe --launch-agent "$path" n1 ;;
		esac
	done <<- 'E'
		true|direct
		chmod 1777 .|checked
		chmod 1777 c|sent
		chmod 777 .|checked
		chmod 775 .|checked
		chmod 775 .|named
		chmod 775 c|sent
		chmod 757 c|sent
		chown bob .|checked
		chown bob c|sent
		chown bob .|named
		chown bob c/berth-agent|sent
		chmod 775 c/berth-agent|sent
		chmod 757 c/berth-agent|sent
		cp -a c /opt/other; rm -r c; ln -s /opt/other c|direct
		cp -a c /opt/other; rm -r c; ln -s /opt/other c; chmod 777 /opt/other|sent
		cp -a c /opt/other; cd c; ln -sf /opt/other/berth-agent .|sent
		cp -a c /opt/other; cd c; ln -sf /opt/other/berth-agent .|named
		cp -a . /opt/other; cd ..; rm -r "a b"; ln -s /opt/other "a b"; chown -h bob "a b"|direct
	E
	run -0 on n1 sh -c 'cd "/opt/a b/c" && ls -l'
	on n1 sh -c 'chmod 1777 "/opt/a b"; chown bob "/opt/a b/c"'
	run -1 probe --launch-agent "$path" n1
	says E_AGENT_UNSAFE
	on n1 sh -c 'chown root "/opt/a b/c"; chmod 777 "/opt/a b/c"'
	run -1 probe --launch-agent "$path" n1
	says E_AGENT_UNSAFE
	on n1 rm -rf "/opt/a b" /opt/other
}

@test "an agent that was safe once, and then is not: bob's next write is seen" {
	local path=/opt/w/bin/berth-agent
	on n0 sh -c 'mkdir -p ${1%/*}; cp "$2" $1' sh $path "$FAKE"
	for change in 777 757; do
		on n1 sh -c 'rm -rf /opt/w /root/.cache /tmp/planted /tmp/b; mkdir -p ${1%/*}; cp "$2" $1' sh $path "$FAKE"
		run -0 probe --own-agent $path n1
		run -0 probe --own-agent $path n1
		silent_on note
		run -0 on n1 ls /dev/shm/berth-0/way$path # the second one had a verdict
		on n1 sh -c 'cd /opt/w; if [ $1 = 777 ]; then chmod 777 bin; else chmod 757 .; fi' sh $change
		as bob n1 sh -c 'mkdir -p /tmp/b; cd /opt/w; printf "#!/bin/sh\nid >> /tmp/planted\n" > /tmp/b/berth-agent
			chmod 755 /tmp/b/berth-agent
			if [ -w bin ]; then rm bin/*; cp /tmp/b/* bin; else mv bin away; cp -r /tmp/b bin; fi'
		run -0 probe --own-agent $path n1
		says 'was not started'
		run -1 on n1 cat /tmp/planted
	done
	# a verdict that bob forged
	open_scratch
	plant /scratch/berth/berth-agent
	on n1 rm -rf /dev/shm/berth-0
	as bob n1 sh -c 'd=/dev/shm/berth-0/way/scratch/berth; mkdir -p $d; touch $d/berth-agent'
	run -0 probe --own-agent /scratch/berth/berth-agent n1
	says 'was not started'
	run -1 on n1 cat /tmp/planted
	on n1 sh -c 'rm -rf /opt/w /dev/shm/berth-*'
}

@test "a direct agent that ends without a word is an error; another machine's is passed over" {
	on n0 cp "$FAKE" /opt/short-agent
	on n1 sh -c 'printf "#!/bin/sh\necho no disk >&2; exit 3\n" > /opt/short-agent; chmod 755 /opt/short-agent'
	for t in ssh openssh; do
		run -1 probe --transport $t --own-agent /opt/short-agent n1
		says E_AGENT_START 'status 3 before its first message: no disk'
	done
	on n1 sh -c 'printf "#!/bin/sh\necho riscv64\n" > /usr/local/bin/uname; chmod 755 /usr/local/bin/uname'
	run -1 probe --own-agent /opt/short-agent n1
	says E_AGENT_ARCH 'its machine is riscv64'
	on n1 rm /opt/short-agent
}

# ---- where copies lie ----

# On n1: the folders before /dev/shm take no program, /dev/shm is open to all, and bob
# waits.  When the user's sha256sum has read an agent there, bob puts a folder of his own
# in the place of the user's, with a program under each name that the script could use.
# All await each other.
bob_swaps() { # USER
	on n1 sh -c '
		u=$(id -u $1) h=$(eval echo ~$1)
		mkdir -p $h/.cache /run/user; chown $1 $h/.cache
		mount -t tmpfs -o noexec,uid=$u none $h/.cache; mount -t tmpfs -o noexec,mode=777 none /run/user
		chmod 777 /dev/shm; rm -f /tmp/go /tmp/done /tmp/planted; mkfifo -m 666 /tmp/go /tmp/done
		cat > /usr/local/bin/sha256sum
		chmod 755 /usr/local/bin/sha256sum' sh "$1" <<- 'E'
		#!/bin/sh
		/usr/bin/sha256sum
		echo > /tmp/go
		read -r x < /tmp/done
	E
	as bob n1 sh -c 'd=/dev/shm/berth-$1
		read -r x < /tmp/go
		mv $d /dev/shm/away && mkdir $d && chmod 777 $d && cd $d || exit
		printf "#!/bin/sh\nid >> /tmp/planted\necho fake_agent\n" > agent-$2; chmod 755 agent-$2
		for p in /proc/[0-9]*; do cp agent-$2 new-n1-${p#/proc/}; done
		while :; do echo > /tmp/done; read -r x < /tmp/go; done' sh \
		"$(on n1 id -u "$1")" "$(sha256sum < "$FAKE" | cut -d' ' -f1)" 3>&- &
	bob=$!
}

bob_ends() { # USER
	kill "$bob" || true
	wait "$bob" || true
	on n1 sh -c 'h=$(eval echo ~$1); pkill -u bob; chmod 1777 /dev/shm; rm -rf /dev/shm/away /dev/shm/berth-* /usr/local/bin/sha256sum
		umount $h/.cache /run/user' sh "$1"
}

# bats test_tags=all
@test "a folder that is swapped while the agent is sent, or while it is checked" {
	local user
	for user in root alice; do
		bob_swaps $user
		run -0 probe -i /vc/ssh/$user --own-agent /opt/berth-agent $user@n1
		says 'n1 note the agent was sent'
		run -0 on n1 ls /dev/shm/away # it was swapped
		says agent-
		run -1 on n1 cat /tmp/planted
		bob_ends $user
	done
	for user in root alice; do # now it is there, and only checked
		bob_swaps $user
		on n1 mv /usr/local/bin/sha256sum /tmp/slow
		run -0 probe -i /vc/ssh/$user --own-agent /opt/berth-agent $user@n1
		on n1 mv /tmp/slow /usr/local/bin/sha256sum
		run -0 probe -i /vc/ssh/$user --own-agent /opt/berth-agent $user@n1
		silent_on 'was sent'
		run -0 on n1 ls /dev/shm/away
		run -1 on n1 cat /tmp/planted
		bob_ends $user
	done
}

@test "a folder for copies that is a link, or that others can write, is not used" {
	on n1 sh -c 'mkdir -p ~/.cache/berth /dev/shm/x /run/user && chmod 770 ~/.cache/berth
		mount -t tmpfs -o noexec none /run/user; ln -s /dev/shm/x /dev/shm/berth-0'
	run -1 probe --own-agent /opt/berth-agent n1
	says E_AGENT_NOEXEC '/root/.cache/berth can be written by other users' '/dev/shm/berth-0 belongs to another user'
	run -0 on n1 ls -A /dev/shm/x
	[ -z "$output" ]
}

@test "a copy that has not run for 30 days goes with the next push, never one that runs" {
	local a b c d e
	for n in a b c d e; do printf -v $n 'agent-%064x' $((16#$n)); done
	on n1 sh -c 'mkdir -p -m 700 ~/.cache/berth; cd ~/.cache/berth
		for f in $1 $2 $3 agent-notes; do echo > $f; done; cp /bin/sleep $4; mkdir $5
		touch -d "31 days ago" $1 agent-notes $5; touch -d "29 days ago" $2
		./$4 1000 > /dev/null 2>&1 < /dev/null & echo $! > /tmp/pid; touch -d "31 days ago" $4' sh "$a" "$b" "$c" "$d" "$e" 3>&-
	run -0 probe --own-agent /opt/berth-agent n1
	says 'the agent was sent'
	run -0 on n1 ls /root/.cache/berth
	silent_on "$a"
	says "$b" "$c" "$d" "$e" agent-notes
	[ "${#lines[@]}" = 6 ]
	on n1 sh -c 'kill $(cat /tmp/pid); rm ~/.cache/berth/$1' sh "${lines[4]}"
	wait_for on n1 sh -c '[ ! -e /proc/$(cat /tmp/pid)/exe ]'
	run -0 probe --own-agent /opt/berth-agent n1
	says 'the agent was sent'
	run -0 on n1 ls /root/.cache/berth
	silent_on "$d"
	says "$b"
}

@test "an agent that runs from its copy keeps it fresh" {
	local f
	on n0 sh -c 'mkdir -p /opt/r; cp "$1" "$2" /opt/r' sh "$RUNNER" "$AGENT"
	run -0 on n0 /opt/r/runner -H n1 true
	f=/root/.cache/berth/agent-$(sha256sum < "$AGENT" | cut -d' ' -f1)
	on n1 touch -d '31 days ago' "$f"
	run -0 on n0 /opt/r/runner -H n1 true
	run -0 on n1 find "$f" -mtime -1
	says "$f"
}

@test "no agent here either" {
	run -1 probe --own-agent /nowhere/berth-agent n1
	says E_AGENT_IMAGE "'/nowhere/berth-agent'"
}

@test "a home that is mounted noexec: the next folder" {
	on n1 sh -c 'mkdir -p ~/.cache; mount -t tmpfs -o noexec none ~/.cache'
	run -0 probe --own-agent /opt/berth-agent n1
	says 'the agent was sent'
	on n1 sh -c 'mkdir -p /run/user; mount -t tmpfs -o noexec none /run/user
		umask 0; mkdir /dev/shm/berth-0; chown bob /dev/shm/berth-0'
	run -1 probe --own-agent /opt/berth-agent n1
	says E_AGENT_NOEXEC "'/opt/berth-agent'" '/root/.cache/berth is mounted noexec' \
		'/run/user/0/berth is mounted noexec' '/dev/shm/berth-0 belongs to another user'
}

@test "a home that is full: the next folder" {
	on n1 sh -c 'mkdir -p ~/.cache; mount -t tmpfs -o size=16k none ~/.cache'
	run -0 probe --own-agent /opt/berth-agent n1
	says 'the agent was sent'
}

@test "another architecture" {
	on n1 sh -c 'printf "#!/bin/sh\necho riscv64\n" > /usr/local/bin/uname; chmod 755 /usr/local/bin/uname'
	run -1 probe --own-agent /opt/berth-agent n1
	says E_AGENT_ARCH 'its machine is riscv64' "'/opt/berth-agent' is for $(uname -m)"
}

@test "an agent that does not run with the libc there" {
	on n0 sh -c 'printf "#!/lib/ld-of-tomorrow.so\n" > /opt/tomorrow; chmod 755 /opt/tomorrow'
	run -1 probe --own-agent /opt/tomorrow n1
	says E_AGENT_LIBC "'/opt/tomorrow'" 'glibc 2'
	run -0 on n1 ls -A /root/.cache/berth
	[ -z "$output" ]
}

@test "an agent that arrives damaged" {
	on n1 sh -c 'printf "#!/bin/sh\ncat > /dev/null; echo 0000 -\n" > /usr/local/bin/sha256sum
		chmod 755 /usr/local/bin/sha256sum'
	run -1 probe --own-agent /opt/berth-agent n1
	says E_AGENT_SEND damaged
}

@test "no ssh program" {
	run -1 on n0 env PATH=/nowhere "$PROBE" --transport openssh --own-agent "$FAKE" n1
	says E_SSH_PROGRAM 'No such file'
}
