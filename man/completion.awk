# `runner --print=tables` (launcher/cli/help.h) becomes the bash completion of runner.
BEGIN { FS = "\t" }
$1 == "option" {
	n++
	all = all (n > 1 ? "\n\t\t" : "") $2
	if ($4 != "word")
		next
	gsub(/ /, " | ", $2)
	words = words (words ? " | \\\n\t\t\t" : "") $2
	if ($7)
		values = values "\t" $2 ")\n\t\tmapfile -t COMPREPLY < <(compgen " \
			($7 ~ /^-/ ? $7 : "-W \"" $7 "\"") " -- \"$cur\")\n\t\treturn ;;\n"
}
END {
	if (!n) {
		print "completion.awk: no options" > "/dev/stderr"
		exit 1
	}
	print "# bash completion for runner; made from its option table"
	print "_runner()\n{"
	print "\tlocal cur=${COMP_WORDS[COMP_CWORD]}"
	print "\tlocal prev=${COMP_WORDS[COMP_CWORD - 1]} i=1\n"
	print "\twhile ((i < COMP_CWORD)); do"
	print "\t\tcase ${COMP_WORDS[i]} in"
	print "\t\t" words ")\n\t\t\t((i += 2)) ;;"
	print "\t\t-*)\n\t\t\t((i += 1)) ;;"
	print "\t\t*)\n\t\t\treturn ;; # the program's own words: files"
	print "\t\tesac\n\tdone\n"
	print "\t((i == COMP_CWORD)) || case $prev in"
	print values "\t*)\n\t\treturn ;;\n\tesac"
	print "\tif [[ $cur != -* ]]; then"
	print "\t\tmapfile -t COMPREPLY < <(compgen -c -- \"$cur\")"
	print "\t\treturn\n\tfi"
	print "\tmapfile -t COMPREPLY < <(compgen -W \"" all "\" -- \"$cur\")\n}"
	print "complete -o default -F _runner runner"
}
