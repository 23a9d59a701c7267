#!/usr/bin/env bats
# limit_s: 60
# takes_s: 1
# shellcheck disable=SC2016,SC2154 # bats sets output and stderr
# --plan=svg, --plan=png: lstopo draws the machines of a plan.
load common

setup() {
	command -v lstopo > /dev/null || skip "no lstopo (tests/deps check)"
}

machine() { # NAME...
	"$ROOT/tests/machines/mkmachine.py" "$T" "$@"
}

# python over the drawing: TEXT has its words, FILL the colour of each box by its class and place.
drawing() {
	/usr/bin/python3 -c '
import sys
import xml.etree.ElementTree as tree
svg = "{http://www.w3.org/2000/svg}"
root = tree.parse(sys.argv[2]).getroot()
text = [t.text for t in root.iter(svg + "text")]
fill = [(r.get("class"), r.get("fill")) for r in root.iter(svg + "rect")]
images = [s for s in root.iter(svg + "svg")]
exec(sys.argv[1])' "$1" "$T/plan.svg"
}

@test "a machine: each rank has a box, its CPUs and its GPU in its colour" {
	machine two-sockets-8gpu
	timeout 30 "$RUNNER" --plan=svg -np 8 --topology "$T/two-sockets-8gpu.xml" -H a:8 > "$T/plan.svg"
	drawing '
assert len(images) == 1 and "a: 8 ranks" in text, text
for rank in range(8):  # at its CPUs, and in its GPU
    assert text.count("rank %d" % rank) == 2, (rank, text)
boxes = [colour for kind, colour in fill if kind == "Misc"]
assert len(boxes) == 16 and len(set(boxes)) == 8, boxes
for colour in set(boxes):
    assert boxes.count(colour) == 2, boxes
    assert {"Core", "PU", "PCI"} <= {kind for kind, its in fill if its == colour}, (colour, fill)'
}

@test "this machine, whose ranks share CPUs: no CPU has a colour" {
	timeout 30 "$RUNNER" --plan=svg -np 2 --bind-to none > "$T/plan.svg"
	drawing '
boxes = {colour for kind, colour in fill if kind == "Misc"}
assert len(boxes) == 2 and "rank 0" in text and "rank 1" in text, text
assert not boxes & {colour for kind, colour in fill if kind == "PU"}, fill'
}

@test "two machines, one below the other; equal ones are one" {
	machine two-sockets-8gpu no-gpu
	timeout 30 "$RUNNER" --plan=svg -np 10 --topology "$T/no-gpu.xml" --topology "n3=$T/two-sockets-8gpu.xml" \
		-H n1:2,n2:2,n3:6 > "$T/plan.svg"
	drawing '
assert len(images) == 3 - (root.tag != svg + "svg"), images
assert any(t.startswith("n1-n2: 2 ranks each") for t in text) or any(t.startswith("n[1-2]") for t in text), text
assert "n3: 6 ranks" in text and "rank 9" in text, text'
}

@test "E_PLAN_DRAW: no lstopo, one that fails; PNG of two machines" {
	mkdir "$T/bin"
	machine two-sockets-8gpu no-gpu
	run -240 --separate-stderr env PATH="$T/bin" "$RUNNER" --plan=svg -np 1
	[[ $stderr == *"cannot draw the plan as svg with lstopo: No such file or directory"*"hint: "* ]]
	printf '#!/bin/sh\necho "<svg "\nexit 1\n' > "$T/bin/lstopo"
	chmod +x "$T/bin/lstopo"
	run -240 --separate-stderr env PATH="$T/bin:$PATH" "$RUNNER" --plan=svg -np 1
	[ -z "$output" ]
	[[ $stderr == *"with lstopo: it has failed"* ]]
	run -240 --separate-stderr "$RUNNER" --plan=png -np 4 --topology "$T/no-gpu.xml" \
		--topology "n2=$T/two-sockets-8gpu.xml" -H n1:2,n2:2
	[[ $stderr == *"as png with lstopo: a PNG holds one machine"* ]]
}

# lstopo writes names into its SVG as they are.
@test "a name that is markup is none in the drawing" {
	machine no-gpu
	sed 's|<object type="Package"|& name="x\&lt;script\&gt;"|; s|<object type="Core"|& subtype="y'"' onload='"'z"|' \
		"$T/no-gpu.xml" > "$T/evil.xml"
	grep -q 'name="x&lt;script&gt;"' "$T/evil.xml"
	timeout 30 "$RUNNER" --plan=svg -np 2 --topology "$T/evil.xml" -H a:2 > "$T/plan.svg"
	run ! grep -E "<script|onload='" "$T/plan.svg"
	drawing 'assert len(images) == 1'
}
