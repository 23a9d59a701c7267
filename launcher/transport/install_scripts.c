#include "launcher/transport/install_scripts.h"

/* Starts the agent $2, with the argument $3 if there is one, if no other user can put a
 * program in its place: each folder on the way, without links, and the agent belong to
 * root or to us, and no group or other user can write to them.  No folder on the way is
 * sticky, as /tmp is: there another user may have mounted a file system by FUSE, which
 * says any owner and any mode.  Nor is the agent on FUSE.
 *
 * $1 is -ldn.  With -ldnL the user named the agent (--launch-agent): links are
 * followed, and owners and groups are the user's choice, if no folder is sticky.
 *
 * One ls for all costs less than a stat for each.  The folders are named "." and
 * "./..", so that each line of ls has nine words whatever their names.  PATH may have
 * ".", and this folder may be another user's: so ls is the system's.
 *
 * A good verdict is kept as an empty file in a folder of ours, which a reboot empties.
 * It holds while nothing on the way is newer: other users could not write there, and
 * after a change of modes that would let them, their first write makes a folder newer.
 * After a change of owners the new one can set times back.  So the agent and its folder
 * must still be ours: nobody else makes such ones.  For root that is asked of the whole
 * way.  So the next start needs no ls.  (One host: 1.2 ms for ls, 0.6 for a shell, 0.1
 * for this.)
 *
 * The login shell may be csh or fish, so this is one line without "!", "'" and
 * backslashes. */
const char install_direct[] =
	"set -f; w=$1; f=${2##*/}; a=${3:-}; h=$PWD; command cd -P \"${2%/*}/\" || "
	"exit 127;"
	" d=$PWD; m=/dev/shm/berth-${EUID:-}; n=;"
	" [ $w = -ldn ] && [ -n \"${EUID:-}\" ] && [ -O . ] && [ -O \"./$f\" ] || m=;"
	" if [ -n \"$m\" ] && [ -O $m ] && command cd -P $m && [ -O . ] &&"
	" [ -O \"./way$d/$f\" ]; then"
	" x=$d/$f; while [ -n \"$x\" ]; do"
	" [ \"$x\" -nt \"./way$d/$f\" ] && n=1;"
	" [ 0 -lt $EUID ] || [ -O \"$x\" ] || n=1; x=${x%/*}; done;"
	" [ / -nt \"./way$d/$f\" ] && n=1;"
	" [ -n \"$n\" ] || { command cd \"$h\"; exec \"$d/$f\" $a; };"
	" fi;"
	" command cd -P \"$d\" && [ \"$PWD\" = \"$d\" ] || exit 127;"
	" x=$d; r=.; l=; while [ -n \"$x\" ]; do l=\"$l $r\"; r=$r/..; x=${x%/*}; done;"
	" no() { echo; echo :berth: unsafe; exit 127; };"
	" l=$(PATH=/usr/bin:/bin:$PATH LC_ALL=C TIME_STYLE=locale"
	" command ls $w $l $r \"./$f\") || exit 127;"
	" set -- $l;"
	" while [ $# -ge 9 ]; do"
	" case $1 in"
	" d????????[tT]*) no ;;"
	" [-d]????[-]??[-]*) ;;"
	" [-d]???????[-]*) [ $w = -ldnL ] || no ;;"
	" *) no ;;"
	" esac;"
	" [ \"$3\" = 0 ] || [ -O \"$9\" ] || [ $w = -ldnL ] || no;"
	" shift 9;"
	" done;"
	" [ $# = 0 ] || [ $w = -ldnL ] || no;"
	" case $(PATH=/usr/bin:/bin:$PATH command stat -f -c %t $r \"./$f\""
	" 2> /dev/null) in *65735546*) no ;; esac;"
	" [ -z \"$m\" ] || (umask 077; mkdir -p $m && command cd -P "
	"$m &&"
	" [ -O . ] && mkdir -p \"./way$d\" && : > \"./way$d/$f\") 2> /dev/null;"
	" command cd \"$h\"; exec \"$d/$f\" $a";

/* p: look in PATH; m: the agent may be sent; n, s: its size and SHA-256; k: the direct
 * try failed in the agent; c: our machine; $1: the path of the direct try.
 *
 * A folder is entered, and all that follows goes by names in it, so that no other
 * folder can come in its place.  It must be ours, and nobody else may write there:
 * then nobody else can change what the SHA-256 was made of.  But a file system of FUSE
 * is another user's program, which says any owner, and other bytes at each read: so
 * none is used, and no folder that is a mount of its own.  A folder is good for a copy
 * if it takes N bytes, and a program in it runs.
 *
 * A copy is old if it has not run for 30 days: an agent sets the time of its copy when
 * it starts and once a day.  Those that run here are kept whatever their time is. */
const char install_search[] =
	"set -f; umask 077; u=$(id -u); r= w= g= t=\n"
	"say() { printf \"\\n:berth: %s\\n\" \"$*\"; }\n"
	"sum() { x=$({ sha256sum || shasum -a 256 || openssl dgst -r -sha256; } "
	"2>/dev/null);"
	" echo \"${x%% *}\"; }\n"
	"look() { PATH=/usr/bin:/bin:$PATH LC_ALL=C stat \"$@\" 2>/dev/null; }\n"
	"ours() {\n" /* [FILE] of this folder: type, modes and devices of . .. FILE */
	" [ -O . ] || { r=\"belongs to another user\"; return 1; }\n"
	" set -- $(look -f -c %t .) $(look -c \"%A %d\" . .. ${1:+\"./$1\"})\n"
	" [ $# -ge 5 ] || { r=\"cannot be judged without stat\"; return 1; }\n"
	" [ \"$3\" = \"$5\" ] || { r=\"is a mount of its own\"; return 1; }\n"
	" [ $1 != 65735546 ] || { r=\"is on FUSE\"; return 1; }\n"
	" case $2${6:--rwx------} in d????[-]??[-]?-????[-]??[-]*) ;;"
	" *) r=\"can be written by other users\"; return 1 ;; esac\n"
	"}\n"
	"try() {\n"
	" cd -P \"$1\" 2>/dev/null && [ -O \"./$2\" ] && [ -x \"./$2\" ] &&"
	" ours \"$2\" || return\n"
	" [ \"$(sum < \"./$2\")\" != $s ] || exec \"./$2\"\n"
	"}\n"
	"good() {\n"
	" mkdir -p \"$d\" 2>/dev/null && cd -P \"$d\" 2>/dev/null ||"
	" { r=\"cannot be created\"; return 1; }\n"
	" [ \"${PWD##*/}\" = \"${d##*/}\" ] ||"
	" { cd /; r=\"belongs to another user\"; return 1; }\n"
	" ours || { cd /; return 1; }\n"
	" { head -c $n /dev/zero > \"$t\"; } 2>/dev/null ||"
	" { r=\"is full or read-only\"; return 1; }\n"
	" { printf \"#!/bin/sh\\n\" > \"$t\" && chmod 700 \"$t\" && \"$t\"; } "
	"2>/dev/null ||"
	" { r=\"is mounted noexec\"; return 1; }\n"
	"}\n"
	"runs() {\n"
	" set +f; set -- \"$1\" /proc/[0-9]*/exe; set -f; x=$1; shift\n"
	" for e; do [ ! \"$e\" -ef \"$x\" ] || return 0; done; return 1\n"
	"}\n"
	"prune() {\n"
	" x=????????; x=$x$x$x$x$x$x$x$x\n" /* 64 digits */
	" for f in $(find . ! -name . -prune -type f -name \"agent-$x\""
	" ! -name \"agent-*[!0-9a-f]*\" ! -name \"agent-$s\" -mtime +29 2>/dev/null);"
	" do\n"
	"  runs \"$f\" || rm -f \"$f\"\n"
	" done\n"
	"}\n"
	"say here\n"
	"[ $k = 0 ] || [ \"$(uname -m)\" != $c ] || { say failed; exit 0; }\n"
	"[ -z \"$1\" ] || try \"${1%/*}/\" \"${1##*/}\"; cd /\n"
	"[ $p = 1 ] && a=$(command -v berth-agent) && exec \"$a\"\n"
	"for d in \"$HOME/.cache/berth\" \"${XDG_RUNTIME_DIR:-/run/user/$u}/berth\""
	" \"/dev/shm/berth-$u\"; do\n"
	" try \"$d\" \"agent-$s\"; cd /\n"
	"done\n"
	"[ $m = 1 ] || { say missing; exit 0; }\n"
	"trap 'rm -f \"$t\"; exit 1' HUP INT PIPE TERM\n"
	"for d in \"$HOME/.cache/berth\" \"${XDG_RUNTIME_DIR:-/run/user/$u}/berth\""
	" \"/dev/shm/berth-$u\"; do\n"
	" t=./new-$(uname -n)-$$\n"
	" if good; then g=1; break; fi\n"
	" rm -f \"$t\" 2>/dev/null; cd /; w=\"$w${w:+, }$d $r\"\n"
	"done\n"
	"[ \"$g\" ] || { say nowhere \"$w\"; exit 0; }\n"
	"f=./agent-$s\n"
	"say need \"$(uname -m)\" \"$(getconf GNU_LIBC_VERSION 2>/dev/null || echo "
	"unknown)\"\n"
	"{ head -c $n > \"$t\"; } 2>/dev/null\n"
	"y=$(sum < \"$t\")\n"
	"[ \"$y\" ] || { rm -f \"$t\"; say fail \"the host has no sha256sum to "
	"check it\"; exit 0; }\n"
	"[ \"$y\" = $s ] || { rm -f \"$t\"; say fail \"it arrived damaged in $d\"; "
	"exit 0; }\n"
	"o=$(\"$t\" --version 2>&1) || { rm -f \"$t\"; say norun $o; exit 0; }\n"
	"mv -f \"$t\" \"$f\" && { (prune); exec \"$f\"; }\n"
	"rm -f \"$t\"; say fail \"cannot rename it in $d\"\n";
