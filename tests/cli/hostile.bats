#!/usr/bin/env bats
# limit_s: 300
# takes_s: 50
# more: floods without an end
# Peers that do not keep to the protocol harm nobody: hostile.py says what must come of each
# act of a hostile agent, hostile_runner.py of each of a hostile launcher.
load common

HERE=$ROOT/tests/cli

hostile() { # ACT...
	"$HERE/hostile.py" "$RUNNER" "$AGENT" "$HELPERS/hostile_agent" "$T" "$@"
}

@test "a hostile agent, in the place of a greeting" {
	hostile noise zeros silent half complains complains-on heir hello-absurd hello-gpus \
		hello-address hello-version length-zero length-over length-most type-unknown early-log
}

@test "a hostile agent, while ranks are placed" {
	hostile hello-again log-flood log-large runners-word gone-at-once ended-at-once no-berth \
		berth-again berth-foreign berth-nasty placed-again placed-ports start-untold \
		lacks-nasty lacks-absurd check-untold check-flood check-absurd
}

@test "a hostile agent, while ranks run" {
	hostile started-again output-flood output-foreign output-nobody output-stream output-epoch \
		output-after ended-foreign ended-again ended-cut ended-string ended-nasty ending-untold \
		gone-untold credit-flood credit-steps asks-on stalls-on fences-on quiet clocks \
		change-foreign change-number changes-on \
		healthy-untold looked-long looked-epoch looked-on looked-life dumped-foreign
}

# bats test_tags=all
@test "a hostile agent that tells where its ranks are" {
	hostile dumped-nasty
}

@test "a hostile agent that asks for names, gives bytes to exchange and tells events without end" {
	hostile lookups-on names-on exchanges-on events-on
}

@test "a hostile agent, at the end, and anything at any time" {
	seed=${SEED:-$RANDOM}
	echo "SEED=$seed"
	hostile output-small output-on ending-flood gone-again gone-port deaf beats never-gone never-leaves \
		"random:$seed" "random:$((seed + 1))" "random:$((seed + 2))"
}

@test "every act of a hostile agent is in one of these tests, and has its row" {
	"$HERE/hostile.py" --list | while read -r act; do
		grep -qwF -- "$act" "$BATS_TEST_FILENAME" && grep -qF "\"$act\"" "$ROOT/tests/helpers/hostile_agent.c" || {
			echo "$act"
			exit 1
		}
	done
}

@test "a hostile launcher" {
	"$HERE/hostile_runner.py" "$AGENT"
}

@test "a launcher that is cut off, or sends changed bytes" {
	seed=${SEED:-$RANDOM}
	echo "SEED=$seed"
	acts=()
	for i in {0..24}; do
		acts+=("cut:$((i * 20 + (seed + i) % 20))" "random:$((seed + i))")
	done
	"$HERE/hostile_runner.py" "$AGENT" "${acts[@]}"
}
