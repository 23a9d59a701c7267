/* fake_agent: an agent that only says hello, for tests of the transports.
 *
 * Built with -DBERTH_VERSION='"9.9"' it is one of another version.  Told "N M\n" it
 * writes N bytes, reads M bytes and then writes one more.  It ends at the end of its
 * input. */
#include <unistd.h>

#include "common/wire.h"

static void put(const void *data, size_t n)
{
	const char *p = data;
	ssize_t done;

	for (; n; p += done, n -= (size_t)done)
		if ((done = write(1, p, n)) <= 0)
			_exit(1);
}

static void say_hello(void)
{
	struct wire_hello m = { .version = BERTH_VERSION,
				.wire = WIRE_VERSION,
				.address = "" };
	struct buf out = { 0 };

	buf_add(&out, WIRE_MAGIC, WIRE_MAGIC_BYTES);
	wire_pack_hello(&out, &m);
	put(buf_head(&out), out.len);
	buf_free(&out);
}

int main(int argc, char **argv)
{
	static char room[65536];
	unsigned long flood = 0, feed = 0;
	size_t have = 0;
	ssize_t n;

	if (argc > 1 && !strcmp(argv[1], "--version")) {
		puts("fake_agent " BERTH_VERSION);
		return 0;
	}
	say_hello();
	while (!memchr(room, '\n', have) && (n = read(0, room + have, 1)) > 0)
		have += (size_t)n;
	if (sscanf(room, "%lu %lu", &flood, &feed) != 2)
		return 0;
	memset(room, 'x', sizeof room);
	for (; flood; flood -= (size_t)n) {
		n = (ssize_t)(flood < sizeof room ? flood : sizeof room);
		put(room, (size_t)n);
	}
	for (; feed && (n = read(0, room, sizeof room)) > 0; feed -= (size_t)n)
		;
	if (!feed)
		put("x", 1);
	while (read(0, room, sizeof room) > 0)
		;
	return 0;
}
