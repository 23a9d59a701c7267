/* diagnosis.c - what the library has to tell of a rank that is late.
 *
 * diagnosis LATE_MS [PATH]: all ranks broadcast "first", then all but the last one call
 * for an allreduce of "grad", and that one LATE_MS later.  PATH: with a timeline from
 * the second operation on.
 *
 * diagnosis apart MS: all but the last rank submit "grad", that one "odd"; each waits
 * until MS are over.
 *
 * What the library logs goes to stderr, a line each: "log LEVEL: TEXT". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/berth.h"
#include "tests/helpers/calls.h"

static void say(void *ctx, enum berth_log_level level, const char *text)
{
	(void)ctx;
	fprintf(stderr, "log %d: %s\n", (int)level, text);
}

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, berth_last_error()->text);
	return 1;
}

static int apart(struct berth_desc *grad, long ms)
{
	berth_request *request;

	if (berth_rank() == berth_size() - 1)
		grad->name = "odd";
	grad->timeout_ms = ms;
	if (call_submit(BERTH_ALLREDUCE, grad, 1, &request))
		return failed("berth_submit");
	return berth_wait(request, -1) == BERTH_TIMEOUT ? 0 : failed("berth_wait");
}

int main(int argc, char **argv)
{
	struct berth_config config = { .size = sizeof config, .log = say };
	float x[1024] = { 0 };
	struct berth_desc first = BERTH_DESC(.name = "first", .in = x, .out = x,
					     .count = 4, .type = BERTH_U8);
	struct berth_desc grad = BERTH_DESC(.name = "grad", .in = x, .out = x,
					    .count = 1024, .type = BERTH_F32);
	struct berth_metrics m = { .size = sizeof m };
	long late_ms = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	struct timespec late = { late_ms / 1000, late_ms % 1000 * 1000000 };

	if (berth_init(&config))
		return failed("berth_init");
	if (argc > 2 && !strcmp(argv[1], "apart"))
		return apart(&grad, strtol(argv[2], NULL, 10));
	if (call_broadcast(&first))
		return failed("call_broadcast");
	if (argc > 2 && berth_timeline_start(argv[2]))
		return failed("berth_timeline_start");
	if (berth_rank() == berth_size() - 1)
		nanosleep(&late, NULL);
	if (call_allreduce(&grad))
		return failed("call_allreduce");
	if (argc > 2 && berth_timeline_stop())
		return failed("berth_timeline_stop");
	berth_metrics(&m);
	printf("rank %d: %llu stalls\n", berth_rank(), (unsigned long long)m.stalls);
	return berth_shutdown() ? failed("berth_shutdown") : 0;
}
