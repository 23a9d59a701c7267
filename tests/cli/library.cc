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
	int *in = static_cast<int *>(berth_alloc(size * sizeof(int)));
	int *out = static_cast<int *>(berth_alloc(size * sizeof(int)));
	struct berth_desc d = BERTH_DESC();

	is(in && out, "berth_alloc");
	is(!berth_register(out, size * sizeof(int)), "berth_register");
	for (uint64_t i = 0; i < size; i++)
		in[i] = 1;
	d.in = in;
	d.out = out;
	d.count = size;
	d.type = BERTH_I32;
	is(!berth_allreduce(&d) && out[0] == berth_size(), "berth_allreduce");
	is(!berth_reduce(&d), "berth_reduce");
	is(!berth_reducescatter(&d) && out[0] == berth_size(), "berth_reducescatter");
	is(!berth_alltoall(&d) && out[size - 1] == 1, "berth_alltoall");
	is(!berth_broadcast(&d) && out[0] == 1, "berth_broadcast");
	d.count = 1;
	is(!berth_allgather(&d) && out[size - 1] == 1, "berth_allgather");
	is(!berth_barrier(nullptr), "berth_barrier");
	is(!berth_deregister(out), "berth_deregister");
	berth_free(in);
	berth_free(out);
}

static void sets()
{
	berth_set *set, *part;
	int first = 0, last = -1;

	is(!berth_set_add(&first, 1, &set), "berth_set_add");
	is(berth_set_size(set) == 1, "berth_set_size");
	is(berth_set_member(set, 0) == 0, "berth_set_member");
	is(berth_set_rank(set) == (berth_rank() ? -1 : 0), "berth_set_rank");
	is(!berth_set_split(nullptr, berth_rank(), 0, &part), "berth_set_split");
	is(berth_set_size(part) == 1, "the part of it");
	is(!berth_set_remove(part) && !berth_set_remove(set), "berth_set_remove");
	is(!berth_join(&last) && last >= 0 && last < berth_size(), "berth_join");
}

static void asynchronous()
{
	double x = 1;
	berth_request *request;
	struct berth_desc d = BERTH_DESC();
	berth_result rc;

	d.name = "x";
	d.in = d.out = &x;
	d.count = 1;
	d.type = BERTH_F64;
	is(!berth_submit(BERTH_ALLREDUCE, &d, 1, &request), "berth_submit");
	is(berth_wait_stream(request, nullptr) == BERTH_UNSUPPORTED, "berth_wait_stream");
	rc = berth_poll(request);
	is(rc == BERTH_OK || rc == BERTH_BUSY, "berth_poll");
	is(!berth_wait(request, -1) && x == berth_size(), "berth_wait");
}

static void designated()
{
#if __cplusplus >= 202002L
	const double two = 2;
	float x[2] = { 1, 2 };
	struct berth_desc d = BERTH_DESC(.name = "designated", .in = x, .out = x, .count = 2,
					 .type = BERTH_F32, .op = BERTH_AVG, .prescale = &two);

	is(d.size == sizeof d && !berth_allreduce(&d) && x[1] == 4, "BERTH_DESC");
#endif
}

static void looking(const char *path)
{
	struct berth_metrics m = {};
	char ways[4096];

	is(berth_algorithms(ways, sizeof ways) == std::strlen(ways), "berth_algorithms");
	m.size = sizeof m;
	is(!berth_metrics(&m) && m.operations > 0, "berth_metrics");
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
	is(berth_init(&c) == BERTH_INVALID, "berth_init without a size");
	c.size = sizeof c;
	is(berth_rank() == -1, "berth_rank");
	is(!berth_init(&c), "berth_init");
	is(berth_local_rank() < berth_local_size(), "berth_local_rank");
	is(berth_cross_rank() < berth_cross_size(), "berth_cross_rank");
	collectives();
	sets();
	asynchronous();
	designated();
	looking(argv[1]);
	if (berth_rank() == 0)
		std::printf("ok\n");
	return berth_shutdown();
}
