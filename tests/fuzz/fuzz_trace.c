/* libFuzzer on trace_merge.h: the input is one or two trace files, parted by a 0 byte.
 * What is merged of them, in either form, is sound: JSON that this reader takes again
 * with as many slices, and messages of protobuf of the length that they say. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "launcher/trace/trace_merge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct part {
	const uint8_t *p;
	size_t n;
};

static ssize_t pull(void *ctx, void *to, size_t n)
{
	struct part *b = ctx;
	const size_t some = n < b->n ? n : b->n;

	memcpy(to, b->p, some);
	b->p += some;
	b->n -= some;
	return (ssize_t)some;
}

static int merge(const char *out, struct part *part, size_t n,
		 struct trace_report *report)
{
	struct trace_input in[2] = { { .path = "a" }, { .path = "b" } };
	struct err e = { 0 };

	for (size_t i = 0; i < n; i++) {
		in[i].pull = pull;
		in[i].ctx = &part[i];
	}
	return trace_merge(out, in, n, report, &e);
}

static uint64_t count_slices(const char *path)
{
	struct trace_reader *r;
	struct trace_head h;
	struct trace_event ev;
	struct err e = { 0 };
	uint64_t slices = 0;
	int more;

	if (trace_reader_open(&r, path, 8 << 20, &e) || trace_reader_begin(r, &h, &e))
		abort();
	while ((more = trace_reader_next(r, &ev, &e)) > 0)
		slices += (ev.ph == 'X' || ev.ph == 'B') && ev.pid > 1;
	if (more < 0 || trace_reader_cut(r))
		abort();
	trace_reader_free(r);
	return slices;
}

/* A packet after the other, up to the end. */
static void check_packets(const unsigned char *p, size_t n)
{
	while (n) {
		uint64_t size = 0;
		unsigned shift = 0;

		if (*p != (1 << 3 | 2))
			abort();
		p++;
		n--;
		do {
			if (!n || shift > 28)
				abort();
			size |= (uint64_t)(*p & 127) << shift;
			shift += 7;
			n--;
		} while (*p++ & 128);
		if (size > n)
			abort();
		p += size;
		n -= size;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char json[64], proto[64];
	const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
	const size_t first = zero ? (size_t)(zero - data) : size;
	struct trace_report report;
	struct part part[2];
	FILE *f;

	snprintf(json, sizeof json, "/dev/shm/fuzz-trace-%d.json", (int)getpid());
	snprintf(proto, sizeof proto, "/dev/shm/fuzz-trace-%d.pf", (int)getpid());
	for (int form = 0; form < 2; form++) {
		part[0] = (struct part){ data, first };
		if (zero)
			part[1] = (struct part){ zero + 1, size - first - 1 };
		if (merge(form ? proto : json, part, zero ? 2 : 1, &report))
			continue;
		if (!form && count_slices(json) != report.slices)
			abort();
		f = form ? fopen(proto, "r") : NULL;
		if (f) {
			static unsigned char all[8 << 20];

			check_packets(all, fread(all, 1, sizeof all, f));
			fclose(f);
		}
	}
	unlink(json);
	unlink(proto);
	return 0;
}
