# hostkeys.bash: what the two suites of host keys share.  `load hostkeys`, after `load ../cli/common`.
#
#   hostkeys_up     for setup_file: three hosts with keys of several kinds, as hostkeys.sh says
#   cases SHARE     runs one in SHARE of the cases of hostkeys.cases, by SEED; 1: all
# shellcheck shell=bash disable=SC2016,SC2154

hostkeys_up() {
	local h
	cluster_up 3
	[ -z "$(why_no_cluster)" ] || return 0
	on n0 sh -c 'cd /vc
		ssh-keygen -q -t ecdsa -N "" -f n2_ecdsa; ssh-keygen -q -t rsa -b 2048 -N "" -f n2_rsa
		for t in ed25519 rsa ecdsa; do ssh-keygen -q -t $t -N "" -f other_$t; done
		mv other_ed25519.pub other.pub
		ssh-keygen -q -t ed25519 -N "" -f ca
		ssh-keygen -q -s ca -I n3 -h -n n3 keys/n3.pub' > /dev/null
	on n1 sh -c 'printf "%s\n" "Port 22" "Port 2222" > /etc/ssh/vc_sshd.d/test.conf'
	on n2 sh -c 'cp /vc/n2_ecdsa /vc/n2_rsa /etc/ssh/; chmod 600 /etc/ssh/n2_*
		printf "HostKey /etc/ssh/%s\n" n2_ecdsa n2_rsa > /etc/ssh/vc_sshd.d/test.conf'
	on n3 sh -c 'cp /vc/keys/n3-cert.pub /etc/ssh/; echo "HostCertificate /etc/ssh/n3-cert.pub" > /etc/ssh/vc_sshd.d/test.conf'
	for h in n1 n2 n3; do "$VCLUSTER" sshd $h reread; done
}

cases() {
	run on n0 "$ROOT/tests/cluster/hostkeys.sh" "$RUNNER" "${SEED:-$(date +%j)}" "$1"
	grep -E '^(not ok|#)' <<< "$output" || true
	grep -E 'cases ran' <<< "$output" >&3
	[ "$status" = 0 ]
}
