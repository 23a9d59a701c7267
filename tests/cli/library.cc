// library.cc: berth.h in C++.  Every call, macro and member compiles and links; what one rank
// or several can say about them is printed as "ok" by rank 0.
#include <berth.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

static void is(bool right, const char *what)
{
	if (right)
		return;
	std::printf("rank %d: not so: %s: %s\n", berth_rank(), what, berth_last_error()->text);
	std::exit(1);
}

static int lines;

static void say(void *ctx, enum berth_log_level level, const char *text)
{
	*static_cast<int *>(ctx) += level <= BERTH_LOG_DEBUG && text[0];
}

// Any C++: BERTH_DESC() without members.
static void collectives()
{
	uint64_t size = static_cast<uint64_t>(berth_size());
	size_t bytes = size * sizeof(int);
	int *in = static_cast<int *>(berth_alloc(bytes, BERTH_HOST, 0));
	int *out = static_cast<int *>(berth_alloc(bytes, BERTH_HOST, 0));
	struct berth_desc d = BERTH_DESC();
	auto run = [&d](berth_kind kind) {
		d.kind = kind;
		return berth_run(&d, -1, nullptr);
	};

	is(in && out, "berth_alloc");
	is(!berth_register(out, bytes, BERTH_HOST, 0), "berth_register");
	is(!berth_alloc(bytes, BERTH_CUDA, 0), "berth_alloc of a GPU");
	for (uint64_t i = 0; i < size; i++)
		in[i] = 1;
	d.in = in;
	d.out = out;
	d.count = size;
	d.type = BERTH_I32;
	d.memory = BERTH_HOST;
	is(!run(BERTH_ALLREDUCE) && out[0] == berth_size(), "allreduce");
	is(!run(BERTH_REDUCE), "reduce");
	is(!run(BERTH_REDUCESCATTER) && out[0] == berth_size(), "reducescatter");
	is(!run(BERTH_ALLTOALL) && out[size - 1] == 1, "alltoall");
	is(!run(BERTH_BROADCAST) && out[0] == 1, "broadcast");
	d.count = 1;
	is(!run(BERTH_ALLGATHER) && out[size - 1] == 1, "allgather");
	is(!run(BERTH_BARRIER), "barrier");
	d.stream = BERTH_HOST_STREAM;
	is(!run(BERTH_BARRIER), "a stream on which nothing waits");
	d.ready = in;
	is(run(BERTH_BARRIER) == BERTH_INVALID, "an event");
	is(run(static_cast<berth_kind>(0)) != BERTH_OK, "no kind");
	is(!berth_deregister(out), "berth_deregister");
	berth_free(in);
	berth_free(out);
}

struct room {
	uint64_t bytes;
	void *p;
};

static void *make_room(void *ctx, uint64_t bytes)
{
	struct room *r = static_cast<struct room *>(ctx);

	r->bytes += bytes;
	return r->p = std::malloc(bytes);
}

// Rank i gives i + 1 elements, and only it knows that.
static void own_counts()
{
	uint64_t size = static_cast<uint64_t>(berth_size());
	uint64_t count = static_cast<uint64_t>(berth_rank()) + 1;
	struct room asked = {};
	int *in = new int[size](), *all = nullptr;
	uint64_t *received = new uint64_t[size];
	struct berth_desc d = BERTH_DESC();

	d.kind = BERTH_ALLGATHER;
	d.type = BERTH_I32;
	d.in = in;
	d.count = count;
	d.received = received;
	d.made = reinterpret_cast<void **>(&all);
	is(!berth_run(&d, -1, nullptr) && all && received[size - 1] == size, "made");
	berth_free(all);
	d.made = nullptr;
	d.alloc = make_room;
	d.alloc_ctx = &asked;
	is(!berth_run(&d, -1, nullptr), "alloc");
	is(asked.bytes == size * (size + 1) / 2 * sizeof(int), "the bytes that alloc is asked for");
	std::free(asked.p);
	d.alloc = nullptr;
	d.out = in;
	d.room = 0;
	is(berth_run(&d, -1, nullptr) == BERTH_MISMATCH, "no room");
	delete[] in;
	delete[] received;
}

static int gather(void *ctx, const void *in, void *out, size_t bytes)
{
	++*static_cast<int *>(ctx);
	std::memcpy(out, in, bytes);
	return 0;
}

static void sets()
{
	berth_set *set, *part, *made;
	int first = 0, last = -1, calls = 0;
	unsigned char key[32] = {};
	struct berth_bootstrap b = {};

	is(!berth_set_add(&first, 1, &set), "berth_set_add");
	is(berth_set_size(set) == 1, "berth_set_size");
	is(berth_set_member(set, 0) == 0, "berth_set_member");
	is(berth_set_rank(set) == (berth_rank() ? -1 : 0), "berth_set_rank");
	is(!berth_set_split(nullptr, berth_rank(), 0, &part), "berth_set_split");
	is(berth_set_size(part) == 1, "the part of it");
	b.size = sizeof b;
	b.rank = 0;
	b.ranks = 1;
	b.allgather = gather;
	b.ctx = &calls;
	b.key = key;
	b.host = "here";
	is(!berth_set_make(&b, &made) && calls, "berth_set_make");
	is(!berth_set_abort(made, "a test"), "berth_set_abort");
	is(!berth_set_remove(made), "berth_set_remove of an aborted one");
	is(!berth_set_remove(part) && !berth_set_remove(set), "berth_set_remove");
	is(!berth_join(nullptr, &last) && last >= 0 && last < berth_size(), "berth_join");
}

static void count(void *ctx, berth_result rc)
{
	*static_cast<int *>(ctx) += 1 + rc;
}

static void asynchronous()
{
	double x = 1;
	size_t which = 7;
	int calls = 0;
	berth_request *request, *later = nullptr, *two[2] = {};
	struct berth_desc d = BERTH_DESC();
	berth_result rc;

	d.kind = BERTH_ALLREDUCE;
	d.name = "x";
	d.shape = "[1]";
	d.in = d.out = &x;
	d.count = 1;
	d.type = BERTH_F64;
	d.timeout_ms = 60000;
	d.priority = 1;
	is(!berth_submit(&d, 1, &request), "berth_submit");
	is(berth_wait_stream(request, nullptr, -1) == BERTH_INVALID, "berth_wait_stream");
	is(!berth_then(request, count, &calls), "berth_then");
	is(berth_then(request, count, &calls) == BERTH_STATE, "two callbacks");
	rc = berth_poll(request);
	is(rc == BERTH_OK || rc == BERTH_BUSY, "berth_poll");
	is(!berth_wait(request, -1) && x == berth_size(), "berth_wait");
	is(!berth_submit_each(&d, 1, &two[1]), "berth_submit_each");
	is(!berth_wait_any(two, 2, -1, &which) && which == 1, "berth_wait_any");
	rc = berth_run(&d, 0, &later);
	is(rc == BERTH_OK || (rc == BERTH_BUSY && !berth_wait(later, -1)), "a slice");
}

static void designated()
{
#if __cplusplus >= 202002L
	const double two = 2;
	float x[2] = { 1, 2 };
	struct berth_desc d = BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32,
					 .op = BERTH_AVG, .name = "designated", .in = x, .out = x,
					 .count = 2, .prescale = &two);

	is(d.size == sizeof d && !berth_run(&d, -1, nullptr) && x[1] == 4, "BERTH_DESC");
#endif
}

// Members that only some operations read, or only later versions.
static void members()
{
	const uint64_t counts[1] = { 1 };
	int from = 0;
	struct berth_desc d = BERTH_DESC();

	d.root = BERTH_ANY;
	d.set = nullptr;
	d.in_counts = d.out_counts = counts;
	d.from = &from;
	d.postscale = nullptr;
	d.tag = 1;
	d.device = 0;
	is(berth_run(&d, -1, nullptr) == BERTH_INVALID, "a kind has to be given");

	const struct berth_error *e = berth_last_error();

	is(e->size == sizeof *e && e->result == BERTH_INVALID && e->text[0], "berth_last_error");
	is(!e->tensor[0] && !e->nmissing && (e->missing || !e->nmissing), "its tensor and ranks");
}

static void looking(const char *path)
{
	struct berth_metrics m = {};
	struct berth_world w = {};
	char ways[4096];

	w.size = sizeof w;
	is(!berth_world(&w), "berth_world");
	is(w.rank == berth_rank() && w.ranks == berth_size() && w.epoch && !w.changed, "a world");
	is(w.local_rank < w.local_size && w.cross_rank < w.cross_size, "local and cross");
	is(!berth_elastic(1) && berth_elastic(2) == BERTH_INVALID, "berth_elastic");
	is(!berth_change(nullptr) && berth_rank() == w.rank, "berth_change");
	is(!berth_world(&w) && w.epoch > 1, "its epoch");
	is(berth_algorithms(ways, sizeof ways) == std::strlen(ways), "berth_algorithms");
	m.size = sizeof m;
	is(!berth_metrics(&m) && m.operations > 0 && m.bytes > 0, "berth_metrics");
	is(m.fused + m.negotiations + m.stalls + m.wait_ns + m.errors < ~0ull, "the rest of it");
	is(!berth_timeline_start(path), "berth_timeline_start");
	is(!berth_timeline_stop(), "berth_timeline_stop");
	is(!std::strcmp(berth_result_text(BERTH_MEMORY), "out of memory"), "berth_result_text");
	is(berth_version()[0] == '0' + BERTH_VERSION_NUMBER / 10000, "berth_version");
}

int main(int, char **argv)
{
	struct berth_config c = {};

	c.log = say;
	c.log_ctx = &lines;
	c.timeout_ms = -1;
	c.bootstrap = nullptr;
	is(berth_init(&c) == BERTH_INVALID, "berth_init without a size");
	c.size = sizeof c;
	is(berth_rank() == -1, "berth_rank");
	is(!berth_init(&c), "berth_init");
	collectives();
	own_counts();
	sets();
	asynchronous();
	designated();
	members();
	looking(argv[1]);
	if (berth_rank() == 0)
		std::printf("ok\n");
	return berth_shutdown();
}
