# `runner --print=tables` (launcher/cli/help.h) becomes the completion of runner for a shell:
# awk -v shell=bash|zsh|fish.
BEGIN { FS = "\t" }
$1 == "option" {
	n++
	names[n] = $2
	arg[n] = $3
	form[n] = $4
	values[n] = $7
	help[n] = $9
}
END {
	if (!n) {
		print "completion.awk: no options" > "/dev/stderr"
		exit 1
	}
	if (shell == "bash")
		bash()
	else if (shell == "zsh")
		zsh()
	else
		fish()
}

# The names of all options whose value is the next word, with SEPARATOR between them.
function with_word(separator,    i, list) {
	for (i = 1; i <= n; i++)
		if (form[i] == "word")
			list = list (list ? " " : "") names[i]
	gsub(/ /, separator, list)
	return list
}

# TEXT as one word of a shell.
function quoted(text) {
	gsub(/'/, "'\\''", text)
	return "'" text "'"
}

function bash(    i, all, patterns) {
	for (i = 1; i <= n; i++)
		all = all (i > 1 ? "\n\t\t" : "") names[i]
	print "# bash completion for runner; made from its option table"
	print "_runner()\n{"
	print "\tlocal words=() option= value= prefix= cur i line=$COMP_LINE rest piece typed\n"
	print "\t# bash cuts words at \"=\" and \":\": those without a blank between them are one of runner's"
	print "\tfor ((i = 0; i <= COMP_CWORD; i++)); do"
	print "\t\tpiece=${COMP_WORDS[i]} rest=${line#\"${line%%[![:space:]]*}\"}"
	print "\t\tif ((i > 1)) && [[ -n $rest && $rest == \"$line\" ]]; then"
	print "\t\t\twords[${#words[@]} - 1]+=$piece"
	print "\t\telif ((i > 0)); then\n\t\t\twords+=(\"$piece\")\n\t\tfi"
	print "\t\tline=${rest#\"$piece\"}\n\tdone"
	print "\tcur=${words[${#words[@]} - 1]}"
	print "\t[[ $piece == [=:] && $cur != \"$piece\" ]] && piece="
	print "\ttyped=${cur%\"$piece\"} # the part of it that bash does not replace"
	print "\tfor ((i = 0; i < ${#words[@]} - 1; )); do"
	print "\t\toption=${words[i]}"
	print "\t\tcase $option in"
	print "\t\t" with_word(" | \\\n\t\t\t") ")\n\t\t\t((i += 2)) ;;"
	print "\t\t-*)\n\t\t\t((i += 1)) ;;"
	print "\t\t*) # the program's own words: files, up to the next program's \":\""
	print "\t\t\twhile [[ ${words[i]} != : ]]; do"
	print "\t\t\t\t((++i < ${#words[@]} - 1)) || return\n\t\t\tdone"
	print "\t\t\t((i += 1))\n\t\t\toption= ;;"
	print "\t\tesac\n\tdone"
	print "\tif ((i == ${#words[@]})); then"
	print "\t\tvalue=$cur"
	print "\telif [[ $cur == -*=* ]]; then"
	print "\t\toption=${cur%%=*} value=${cur#*=}"
	print "\t\tprefix=$option="
	print "\telif [[ $option == -h || $option == --help ]] && [[ $cur != -* ]]; then"
	print "\t\tvalue=$cur"
	print "\telif [[ $cur == -* ]]; then"
	print "\t\tmapfile -t COMPREPLY < <(compgen -W \"" all "\" -- \"$cur\")\n\t\treturn"
	print "\telse"
	print "\t\tmapfile -t COMPREPLY < <(compgen -c -- \"$cur\")\n\t\treturn\n\tfi"
	print "\tcase $option in"
	for (i = 1; i <= n; i++) {
		patterns = names[i]
		gsub(/ /, " | ", patterns)
		if (!values[i])
			continue
		print "\t" patterns ")"
		if (values[i] ~ /^-/)
			print "\t\tcompopt -o filenames"
		print "\t\tmapfile -t COMPREPLY < <(compgen " \
			(values[i] ~ /^-/ ? values[i] : "-W \"" values[i] "\"") " -- \"$value\") ;;"
	}
	print "\tesac\n\tCOMPREPLY=(\"${COMPREPLY[@]/#/$prefix}\")"
	print "\tCOMPREPLY=(\"${COMPREPLY[@]#\"$typed\"}\")\n}"
	print "complete -o default -F _runner runner"
}

# One line for each name: '*--map-by=[what it does]:slot|node:(slot node)'.
function zsh(    i, k, m, name, action, spec) {
	print "#compdef runner\n# made from the option table of runner\n_arguments -S \\"
	for (i = 1; i <= n; i++) {
		action = values[i] == "-f" ? "_files" : values[i] == "-d" ? "_files -/" : values[i] ? "(" values[i] ")" : " "
		m = split(names[i], name, " ")
		for (k = 1; k <= m; k++) {
			spec = (form[i] == "maybe" ? "(- : *)" : "*") name[k]
			if (length(name[k]) > 2)
				spec = spec (form[i] == "tied" ? "=-" : form[i] == "word" ? "=" : "")
			spec = spec "[" escaped(help[i], "[]:[]") "]"
			if (form[i])
				spec = spec (form[i] == "word" ? ":" : "::") escaped(arg[i], ":") ":" action
			print "\t" quoted(spec) " \\"
		}
	}
	print "\t'(-)1:program:_command_names -e' '*::argument:_normal'"
}

# TEXT with a backslash before each character of CLASS.
function escaped(text, class) {
	gsub(class, "\\\\&", text)
	return text
}

function fish(    i, k, m, name, line) {
	print "# fish completion for runner; made from its option table"
	print "function __runner_own --description 'no program is named yet'"
	print "\tset -l words (commandline -opc)"
	print "\tset -e words[1]"
	print "\twhile set -q words[1]"
	print "\t\tswitch $words[1]"
	print "\t\t\tcase " with_word(" ")
	print "\t\t\t\tset -e words[1]"
	print "\t\t\tcase '-*'"
	print "\t\t\tcase '*'"
	print "\t\t\t\treturn 1"
	print "\t\tend"
	print "\t\tset -e words[1]"
	print "\tend\n\treturn 0\nend"
	print "complete -c runner -n __runner_own -f"
	print "complete -c runner -n '__runner_own; and not string match -q -- \"-*\" (commandline -ct)'" \
		" -a '(__fish_complete_command)'"
	for (i = 1; i <= n; i++) {
		line = "complete -c runner -n __runner_own"
		m = split(names[i], name, " ")
		for (k = 1; k <= m; k++)
			line = line (name[k] ~ /^--/ ? " -l " substr(name[k], 3) : \
				(length(name[k]) > 2 ? " -o " : " -s ") substr(name[k], 2))
		line = line " -d " quoted(help[i])
		if (form[i] == "word" || form[i] == "maybe")
			line = line (values[i] == "-f" ? " -r -F" : " -x")
		if (values[i] == "-d")
			line = line " -a '(__fish_complete_directories)'"
		else if (values[i] && values[i] != "-f")
			line = line " -a '" values[i] "'"
		print line
	}
}
