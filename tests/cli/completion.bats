#!/usr/bin/env bats
# limit_s: 240
# takes_s: 18
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output
# The completion of runner in bash, zsh and fish: the line that the user has after a TAB in a
# terminal, or what fish offers.
load common

setup_file() {
	export FILES=$BATS_FILE_TMPDIR/files SCRIPTS=$BATS_FILE_TMPDIR/scripts
	mkdir -p "$SCRIPTS" "$FILES/launcher/cli" "$FILES/bin"
	mkdir "$FILES/a:b"
	touch "$FILES/README" "$FILES/launcher/file" "$FILES/a:b/README"
	printf '#!/bin/sh\n' > "$FILES/bin/trainer-of-nets"
	chmod +x "$FILES/bin/trainer-of-nets"
	cd "$ROOT" || return
	for shell in bash zsh fish; do
		"$RUNNER" --print=tables | awk -v shell=$shell -f man/completion.awk > "$SCRIPTS/$shell"
	done
	mv "$SCRIPTS/zsh" "$SCRIPTS/_runner" # zsh finds it by its name
}

setup() {
	cd "$FILES" || return
	export PATH=$FILES/bin:$PATH
}

# In SHELL the line LINE becomes WANT after a TAB.
completes() { # SHELL LINE WANT
	run -0 /usr/bin/python3 "$ROOT/tests/helpers/complete.py" "$1" "$SCRIPTS" "$2"
	[ "$output" = "$3" ] || { echo "$1: '$2' becomes '$output', not '$3'"; return 1; }
}

# What bash and zsh have in common.
common_lines() { # SHELL
	completes "$1" 'runner -np 2 --map-by n' 'runner -np 2 --map-by node '
	completes "$1" 'runner --map-by=n' 'runner --map-by=node '
	completes "$1" 'runner --bind-to=c' 'runner --bind-to=core '
	completes "$1" 'runner --bind-to=core --keep' 'runner --bind-to=core --keep-going '
	completes "$1" 'runner -x A=1 --keep' 'runner -x A=1 --keep-going '
	completes "$1" 'runner -H n1:2 --keep' 'runner -H n1:2 --keep-going '
	completes "$1" 'runner -H n1:2,[::1]:3 -x A=b:c --map-by=n' 'runner -H n1:2,[::1]:3 -x A=b:c --map-by=node '
	completes "$1" 'runner --plan=j' 'runner --plan=json '
	completes "$1" 'runner --help bind' 'runner --help binding '
	completes "$1" 'runner -h env' 'runner -h environment '
	completes "$1" 'runner --hostfile REA' 'runner --hostfile README '
	completes "$1" 'runner --wdir launcher/' 'runner --wdir launcher/cli/'
	completes "$1" 'runner --map-by node --keep' 'runner --map-by node --keep-going '
	completes "$1" 'runner --plan --keep' 'runner --plan --keep-going '
	completes "$1" 'runner -np 2 trainer-of' 'runner -np 2 trainer-of-nets '
	completes "$1" 'runner python --map' 'runner python --map'
	completes "$1" 'runner -np 2 trainer-of-nets REA' 'runner -np 2 trainer-of-nets README '
}

@test "bash completes options, their values, topics and files, and leaves the program's words alone" {
	common_lines bash
	completes bash 'runner --map' 'runner --map-by '
	completes bash 'runner -np 1 trainer-of-nets --map : --map' 'runner -np 1 trainer-of-nets --map : --map-by '
	completes bash 'runner -np 1 trainer-of-nets : -np 1 a --map' 'runner -np 1 trainer-of-nets : -np 1 a --map'
	completes bash 'runner --hostfile a:b/REA' 'runner --hostfile a:b/README '
}

@test "zsh completes options, their values, topics and files, and leaves the program's words alone" {
	common_lines zsh
	completes zsh 'runner --map' 'runner --map-by='
}

# What fish offers after LINE, without its descriptions.
offers() { # LINE
	run -0 fish --no-config -c "source $SCRIPTS/fish; complete -C \"\$argv\"" "$1"
	output=$(cut -f 1 <<< "$output" | sort | tr '\n' ' ')
	echo "$1: $output"
}

@test "fish completes options, their values, topics and files, and leaves the program's words alone" {
	offers 'runner --map'
	[ "$output" = "--map-by " ]
	offers 'runner -np 2 --map-by '
	[ "$output" = "node slot " ]
	offers 'runner --bind-to=c'
	[ "$output" = "--bind-to=core " ]
	offers 'runner --plan=j'
	[ "$output" = "--plan=json " ]
	offers 'runner --help bind'
	[ "$output" = "binding " ]
	offers 'runner -h env'
	[ "$output" = "environment " ]
	offers 'runner --hostfile REA'
	[ "$output" = "README " ]
	offers 'runner --wdir launcher/'
	[ "$output" = "launcher/cli/ " ]
	offers 'runner --map-by node --keep'
	[ "$output" = "--keep-going " ]
	offers 'runner --plan --keep'
	[ "$output" = "--keep-going " ]
	offers 'runner -np 2 trainer-of'
	[ "$output" = "trainer-of-nets " ]
	offers 'runner python --map'
	[ "$output" = " " ]
	offers 'runner -np 2 trainer-of-nets REA'
	[ "$output" = "README " ]
}

@test "all names of options are in each of them" {
	"$RUNNER" --print=tables | awk -F'\t' '$1 == "option" { print $2 }' | tr ' ' '\n' | sort > "$T/names"
	[ "$(wc -l < "$T/names")" -gt 60 ]
	diff "$T/names" <(sed -n 's/^\t.\(([^)]*)\)\?\**\(-[-A-Za-z]*[A-Za-z]\).*/\2/p' "$SCRIPTS/_runner" | sort)
	diff "$T/names" <(grep -oE '^complete .* -d ' "$SCRIPTS/fish" | sed 's/-n __runner_own//; s/^complete -c runner//; s/-d $//' |
		grep -oE -- '-[los] [-A-Za-z]+' | sed 's/^-l /--/; s/^-[os] /-/' | sort)
}

@test "make install puts them where the shells look, and uninstall takes them away" {
	make -s -C "$ROOT" BUILD="$BUILD" DESTDIR="$T/root" PREFIX=/usr install
	bash -n "$T/root/usr/share/bash-completion/completions/runner"
	zsh -n "$T/root/usr/share/zsh/site-functions/_runner"
	fish --no-execute "$T/root/usr/share/fish/vendor_completions.d/runner.fish"
	make -s -C "$ROOT" BUILD="$BUILD" DESTDIR="$T/root" PREFIX=/usr uninstall
	[ -z "$(find "$T/root" -name '*runner*')" ]
}
