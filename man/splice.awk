# A line  .\" @FORM@  becomes a part of the page.  @man@, @environment@, @advice@, @compat@,
# @exits@ and @errors@ come from the rows of `runner --print=tables` (launcher/cli/help.h); @given@, the
# variables of a rank, comes from common/given.def; @parameters@ and @ignored@, the
# variables that the library reads, come from lib/core/params.def.
/^\.\\" @given@$/ {
	given()
	next
}
/^\.\\" @(parameters|ignored)@$/ {
	parameters($0 ~ /parameters/ ? "PARAM" : "IGNORED")
	next
}
/^\.\\" @[a-z]+@$/ {
	form = $0
	gsub(/^[^@]*@|@$/, "", form)
	tables(form)
	next
}
{ print }

# The rows of runner's tables that belong to FORM.
function tables(form,    command, row, cell, heading, lists, n) {
	command = runner " --print=tables"
	while ((command | getline row) > 0) {
		split(row, cell, "\t")
		if (form == "man" && cell[1] == "topic") {
			print (lists++ ? ".El\n" : "") ".Ss " cell[2] "\n.Bl -tag -width Ds"
		} else if (form == "man" && cell[1] == "option") {
			print ".It " flags(cell[2], argument(cell[3], cell[4]))
			paragraph(cell[8])
			if (cell[5] cell[6])
				print ".Pq " (cell[5] ? "Cm " cell[5] : "") (cell[5] && cell[6] ? " , " : "") \
					(cell[6] ? "Ev " cell[6] : "")
		} else if (form == "environment" && cell[1] == "option" && cell[6]) {
			sub(/ .*/, "", cell[2])
			print ".It Ev " cell[6] "\nAs\n." flags(cell[2]) " ."
		} else if (form == "advice" && cell[1] == "advice") {
			if (cell[2] != heading)
				print (lists++ ? ".El\n" : "") ".Ss " cell[2] "\n.Bl -tag -width Ds"
			heading = cell[2]
			print ".It \"" mdoc(cell[3]) "\""
			paragraph(cell[4])
		} else if (form == "compat" && cell[1] == "compat") {
			print ".It " flags(cell[2])
			paragraph(cell[3] ", " cell[4] (cell[5] ? ": " cell[5] : ""))
		} else if (form == "exits" && cell[1] == "exit") {
			print ".It " cell[2]
			paragraph(cell[3])
		} else if (form == "errors" && cell[1] == "error") {
			print ".It \"" mdoc(shape(cell[3])) "\""
			if (cell[4])
				paragraph(shape(cell[4]))
			print ".Pq exit status " cell[2]
		} else {
			continue
		}
		n++
	}
	if (lists)
		print ".El"
	if (close(command) != 0 || !n) {
		print "splice.awk: nothing for @" form "@" > "/dev/stderr"
		exit 1
	}
}

# "-np --num-proc" as "Fl np , Fl \-num\-proc", ARG behind each; Fl itself prints the first dash.
function flags(names, arg,    name, part, n, k, i, j, out) {
	n = split(names, name, " ")
	for (i = 1; i <= n; i++) {
		k = split(substr(name[i], 2), part, "-")
		out = out (i > 1 ? " , " : "") "Fl " part[1]
		for (j = 2; j <= k; j++)
			out = out "\\-" part[j]
		out = out arg
	}
	return out
}

function argument(arg, form) {
	return form == "tied" ? " Ns Oo = Ns Ar " arg " Oc" : form ? " Ar " arg : ""
}

# TEXT with roff's own characters escaped; an option's hyphens stay hyphens.
function mdoc(text,    out, before, c, i, option) {
	before = " "
	for (i = 1; i <= length(text); i++) {
		c = substr(text, i, 1)
		if (index(" '(`,", before))
			option = substr(text, i) ~ /^--?[A-Za-z]/
		if (c == "\\")
			out = out "\\e"
		else if (c == "-" && option)
			out = out "\\-"
		else
			out = out (before == " " && (c == "." || c == "'") ? "\\&" : "") c
		before = c
	}
	return out
}

# TEXT in lines of at most 78 columns; a sentence begins a new one.
function paragraph(text,    word, line, n, i) {
	n = split(mdoc(text), word, " ")
	line = word[1]
	for (i = 2; i <= n; i++) {
		if (word[i - 1] ~ /\.$/ || length(line) + 1 + length(word[i]) > 78) {
			print line
			line = word[i]
		} else {
			line = line " " word[i]
		}
	}
	print line
}

# A sentence of errors.def as the page shows it: "..." and N where printf puts values.
function shape(text,    out, c) {
	while (match(text, /%[-+ #0-9.*lzhjt]*[A-Za-z%]/)) {
		c = substr(text, RSTART + RLENGTH - 1, 1)
		out = out substr(text, 1, RSTART - 1) (c == "%" ? "%" : c == "s" ? "..." : "N")
		text = substr(text, RSTART + RLENGTH)
	}
	return out text
}

# Rows are GIVEN("NAME", readers, RULE, KIND(value)); readers may be a macro.
function given(    line, q, words, macro, readers, rule, value, last, n) {
	while ((getline line < "common/given.def") > 0) {
		split(line, q, "\"")
		if (line ~ /^#define [A-Z]+ "/) {
			split(line, words, " ")
			macro[words[2]] = q[2]
		}
		if (line !~ /^GIVEN\("/)
			continue
		readers = q[4]
		if (match(q[3], /[A-Z]+/))
			readers = macro[substr(q[3], RSTART, RLENGTH)]
		match(line, /(IDENTITY|ALWAYS|DEFAULT|BEFORE), [A-Z_]+\([^)]*/)
		last = split(substr(line, RSTART, RLENGTH), value, /, |\(/)
		rule = value[1]
		if (value[2] == "CONSTANT" || value[2] == "SHOWN") {
			gsub(/"/, "", value[3])
			value[3] = value[3] == "" ? "empty" : ".Li " value[3]
		} else {
			value[3] = value[last]
			gsub(/_/, " ", value[3])
		}
		given_rows[rule] = given_rows[rule] ".It Ev " q[2] "\n" value[3] "\n.Pq " mdoc(readers) "\n"
		n++
	}
	if (!n) {
		print "splice.awk: no rows in common/given.def" > "/dev/stderr"
		exit 1
	}
	print "Behind each variable is its value, and in parentheses the programs that read it."
	section("IDENTITY", "The identity of the rank, which no option changes:")
	section("ALWAYS", "Only\n.Fl x\nchanges these; without it a variable with\n.Ql never\nis not set:")
	section("DEFAULT", "Set only if they have no value:")
	section("BEFORE", "Put in front of the value that there is, with a\n.Ql \\&:\nbetween:")
}

# No table: the columns of one touch where the page is narrow.
function section(rule, intro) {
	print ".Pp\n" intro
	print ".Bl -tag -offset indent -width OMPI_COMM_WORLD_LOCAL_RANK -compact"
	printf "%s", given_rows[rule]
	print ".El"
}

# Rows are PARAM(NAME, member, KIND, default, "what"), IGNORED(NAME, "why"); variables that
# are ignored for the same reason share an item.
function parameters(macro,    line, row, part, q, names, why, n, i) {
	while ((getline line < "lib/core/params.def") > 0) {
		if (line ~ "^" macro "\\(")
			row = line
		else if (row)
			row = row line
		if (row !~ /\)$/)
			continue
		split(row, part, /[(,] */)
		split(row, q, "\"")
		q[2] = toupper(substr(q[2], 1, 1)) substr(q[2], 2)
		gsub(/\.  /, ".\n", q[2])
		if (macro == "PARAM")
			printf ".It Ev %s%s\n%s.\n%s", part[2], unit(part[4]), q[2], otherwise(part[4], part[5])
		else if (!names[q[2]])
			why[++n] = q[2]
		names[q[2]] = names[q[2]] (names[q[2]] ? " , " : "") part[2]
		row = ""
	}
	close("lib/core/params.def")
	if (!n)
		return
	print ".Pp\nThese of Horovod's do nothing.\n.Fn berth_init\ntells the function\n.Fa log\nof" \
		"\n.Xr berth_init 3\nof each that is set.\n.Ql runner \\-\\-horovod\nprints those that an option" \
		" of horovodrun has set.\n.Bl -tag -width Ds"
	for (i = 1; i <= n; i++)
		print ".It Ev " names[why[i]] "\n" why[i] "."
	print ".El"
}

function unit(kind) {
	return kind == "SECONDS" ? " No (seconds)" : kind == "MS" ? " No (milliseconds)" : kind == "BYTES" ? " No (bytes)" : ""
}

function otherwise(kind, value) {
	if (value == "NULL" || value == 0)
		return ""
	return "Default: " (kind == "SECONDS" ? value / 1000 : value) ".\n"
}
