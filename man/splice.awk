# A line  .\" @FORM@  becomes what `runner --print=FORM` prints; @given@, the variables of a
# rank, comes from the table in agent/placement/env.c; @knobs@ and @ignored@, what the library reads, from
# lib/knobs.def.
/^\.\\" @given@$/ {
	given()
	next
}
/^\.\\" @(knobs|ignored)@$/ {
	knobs($0 ~ /knobs/ ? "KNOB" : "IGNORED")
	next
}
/^\.\\" @[a-z]+@$/ {
	form = $0
	gsub(/^[^@]*@|@$/, "", form)
	fflush()
	if (system(runner " --print=" form) != 0)
		exit 1
	next
}
{ print }

# Rows are { "NAME", readers, RULE, KIND(value) }; readers may be a macro.
function given(    line, row, inside, q, words, readers, rule, value, n) {
	while ((getline line < "agent/placement/env.c") > 0) {
		if (split(line, q, "\"") == 3 && line ~ /^#define [A-Z]+ "/) {
			split(line, words, " ")
			macro[words[2]] = q[2]
		}
		if (line ~ /} table\[\] = {/)
			inside = 1
		else if (inside && line ~ /^};/)
			break
		else if (inside && line !~ /^\t\/\*/)
			row = row " " line
		if (row !~ /},[ \t]*$/)
			continue
		split(row, q, "\"")
		readers = q[4]
		if (match(q[3], /[A-Z]+/))
			readers = macro[substr(q[3], RSTART, RLENGTH)]
		match(row, /(IDENTITY|ALWAYS|DEFAULT),[ \t]*[A-Z_]+\([^)]*/)
		split(substr(row, RSTART, RLENGTH), value, /,[ \t]*|\(/)
		rule = value[1]
		if (value[2] == "CONSTANT") {
			gsub(/"/, "", value[3])
			value[3] = "Li " value[3]
		} else {
			gsub(/_/, " ", value[3])
			if (value[2] == "IN_SLURM")
				value[3] = "slurm " value[3]
		}
		list[rule] = list[rule] ".It Ev " q[2] " Ta " value[3] " Ta " readers "\n"
		row = ""
		n++
	}
	if (!n) {
		print "splice.awk: no table in agent/placement/env.c" > "/dev/stderr"
		exit 1
	}
	section("IDENTITY", "Who the rank is; nothing changes these:")
	section("ALWAYS", "Only\n.Fl x\nchanges these; never means that nobody else's value is passed on:")
	section("DEFAULT", "Only where they are not set before:")
}

function section(rule, intro) {
	print intro
	print ".Bl -column -offset indent OMPI_COMM_WORLD_LOCAL_RANK \"omp threads\""
	print ".It Sy Variable Ta Sy Is Ta Sy Read by"
	printf "%s", list[rule]
	print ".El"
}

# Rows are KNOB(NAME, member, KIND, default, "what"), IGNORED(NAME, "why"); those that are ignored
# for one reason stand together.
function knobs(macro,    line, row, part, q, names, why, n, i) {
	while ((getline line < "lib/knobs.def") > 0) {
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
		if (macro == "KNOB")
			printf ".It Ev %s%s\n%s.\n%s", part[2], unit(part[4]), q[2], otherwise(part[4], part[5])
		else if (!names[q[2]])
			why[++n] = q[2]
		names[q[2]] = names[q[2]] (names[q[2]] ? " , " : "") part[2]
		row = ""
	}
	close("lib/knobs.def")
	if (!n)
		return
	print ".Pp\nThese of Horovod's are accepted, with a line in the log, and do nothing:\n.Bl -tag -width Ds"
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
