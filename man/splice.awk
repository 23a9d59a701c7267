# A line  .\" @FORM@  becomes what `runner --print=FORM` prints.
/^\.\\" @[a-z]+@$/ {
	form = $0
	gsub(/^[^@]*@|@$/, "", form)
	fflush()
	if (system(runner " --print=" form) != 0)
		exit 1
	next
}
{ print }
