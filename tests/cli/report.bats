#!/usr/bin/env bats
# limit_s: 240
# takes_s: 2
# shellcheck disable=SC2016,SC2154 # $ is for the ranks' shells; bats sets output
# --report FILE.html, FILE.json: the job as a page, and for programs.
load common

r() { timeout -k 5 30 "$RUNNER" "$@" < /dev/null; }

# python over FILE.json: `j` is its object.
json() {
	/usr/bin/python3 -c '
import json, sys
j = json.load(open(sys.argv[2]))
exec(sys.argv[1])' "$1" "$T/job.json"
}

# The page has each tag in its place, and nothing of it is elsewhere.
page() {
	/usr/bin/python3 - "$T/job.html" <<-'E'
		import html.parser, sys

		class Page(html.parser.HTMLParser):
		    open, ids, links = [], set(), set()

		    def handle_starttag(self, tag, attrs):
		        assert tag not in ("script", "img", "link", "iframe", "object", "base"), tag
		        attrs = dict(attrs)
		        assert not set(attrs) & {"src", "srcset", "data", "action"}, attrs
		        if "href" in attrs:
		            assert attrs["href"].startswith("#r"), attrs
		            self.links.add(attrs["href"][1:])
		        if "id" in attrs:
		            assert attrs["id"] not in self.ids, attrs
		            self.ids.add(attrs["id"])
		        if tag not in ("meta", "br"):
		            self.open.append(tag)

		    def handle_startendtag(self, tag, attrs):
		        assert tag == "path", tag

		    def handle_endtag(self, tag):
		        assert self.open.pop() == tag, (tag, self.open)

		text = open(sys.argv[1]).read()
		page = Page()
		page.feed(text)
		page.close()
		assert not page.open, page.open
		assert page.links <= page.ids, (page.links, page.ids)
		for word in "http:", "https:", "url(", "@import":
		    assert word not in text, word
	E
}

@test "a job that goes well: facts, samples, events; one line says where" {
	run -0 r --report "$T/job.html" --report "$T/job.json" -np 2 --monitor 0.2 sh -c 'sleep 0.8'
	says "runner: report: $T/job.html" "runner: report: $T/job.json"
	page
	json '
assert j["status"] == 0 and j["np"] == 2 and j["cause"] is None and j["period_s"] == 0.2, j
assert j["apps"][0]["command"] == ["sh", "-c", "sleep 0.8"], j["apps"]
assert [e["event"] for e in j["events"]] == ["host up", "rank started", "rank ended", "end"], j["events"]
assert j["events"][1]["ranks"] == "0-1" and j["events"][1]["count"] == 2
for rank in j["ranks"]:
    assert rank["ended"] == "exited with status 0" and rank["cpus"] and not rank["failed"], rank
    assert rank["sampled_s"] > 0.2 and rank["peak_bytes"] > 0, rank
    assert all(len(rank["strip"][name]) == j["columns"] for name in rank["strip"]), rank'
}

@test "collectives by size, with their bus bandwidth" {
	run -0 r --report "$T/job.html" --report "$T/job.json" -np 2 "$BUILD/bin/berth_bench" allreduce \
		-b 32K -e 256K -f 2 -m 1
	page
	grep -q '<td>allreduce</td><td class="r">128 KiB</td>' "$T/job.html"
	json '
rows = j["collectives"]
assert [r["least_bytes"] for r in rows] == [64 << 10, 128 << 10, 256 << 10], rows
for r in rows:
    assert r["operation"] == "allreduce" and r["bytes"] == r["least_bytes"], r
    assert r["times"] >= 9 and 0 < r["least_s"] <= r["mean_s"] < 1, r
    # 2 (n - 1) / n is 1 for 2 ranks; the time is rounded to us
    assert 0.9 < r["bus_bytes_per_s"] * r["least_s"] / r["bytes"] < 1.1, r'
}

@test "a failure, with its cause, and without a secret" {
	HF_TOKEN=hidden7 run -7 r --report "$T/job.html" --report "$T/job.json" -q -np 2 -x API_KEY=hidden8 \
		sh -c '[ $RANK = 0 ] || exit 7; sleep 20' --password=hidden9 --password hidden6 --epochs 7
	silent_on "report:"
	page
	json '
assert j["period_s"] == 1, j
assert j["status"] == 7 and "rank 1" in j["cause"], j
assert [r["failed"] for r in j["ranks"]] == [False, True], j["ranks"]
assert j["apps"][0]["command"][4:] == ["--password", "<redacted, 7 bytes>", "--epochs", "7"], j["apps"]
assert "cause" in [e["event"] for e in j["events"]]
assert ["HF_TOKEN", "<redacted, 7 bytes>"] in j["environment"]
assert ["API_KEY", "<redacted, 7 bytes>"] in j["apps"][0]["environment"]'
	run ! grep -E 'hidden[6789]' "$T/job.html" "$T/job.json"
}

# bats test_tags=all
@test "the time between two lives of a rank is drawn" {
	# rank 0 takes its time to end, and rank 1 does not start again before
	run -0 r --report "$T/job.html" --restarts 1 -np 2 --monitor 0.1 \
		bash -c 'trap "sleep 1.5; exit 1" TERM
			[ -e "$0" ] && exec sleep 1
			[ $RANK = 0 ] || { sleep 0.8; touch "$0"; exit 1; }
			while :; do sleep 0.1; done' "$T/lived"
	page
	grep -q '<svg class="strip".*<path class="z" d="M' "$T/job.html"
}

@test "^C and TERM: the report is written, too" {
	local signal status
	for signal in INT TERM; do
		status=0
		rm -f "$T/job.json" "$T/job.html"
		timeout -k 5 30 "$RUNNER" --events "$T/events" --report "$T/job.json" --report "$T/job.html" -np 2 sleep 20 \
			< /dev/null 2> "$T/err" &
		wait_for grep -qs '"rank started", "rank": 1' "$T/events"
		kill -s $signal "$(pgrep -P $!)"
		wait $! || status=$?
		[ "$status" != 0 ]
		page
		json "assert 'SIG$signal' in j['cause'] and not any(r['failed'] for r in j['ranks']), j"
		rm "$T/events"
	done
}

@test "a file that cannot be written, and one that says no form, are refused before anything starts" {
	run -2 r --report /no/such/folder/job.html -np 1 touch "$T/started"
	says "cannot write --report file '/no/such/folder/job.html'"
	hinted
	run -2 r --report "$T/job.pdf" -np 1 touch "$T/started"
	says "--report '$T/job.pdf'"
	hinted
	[ ! -e "$T/started" ]
	[ ! -e "$T/job.pdf" ]
}

@test "--plan and --check write none; --monitor off, no samples" {
	echo old > "$T/job.json"
	run -0 r --plan --report "$T/job.json" -np 1 true
	[ "$(cat "$T/job.json")" = old ]
	run -0 r --monitor off --report "$T/job.json" -np 1 true
	json 'assert j["period_s"] == 0 and j["verdict"] is None, j'
}

@test "texts of hostile programs are texts" {
	local long
	long=$(printf '%065536d' 0)
	run -0 r --report "$T/job.html" --report "$T/job.json" -np 1 -x 'A=</dd><script>alert(1)</script>' -x "B=$long" \
		true '</code><img src=x>' "$long" $'\x01\xff'
	page
	json 'assert j["apps"][0]["command"][1] == "</code><img src=x>", j["apps"]'
	[ "$(stat -c %s "$T/job.html")" -lt 60000 ]
}
