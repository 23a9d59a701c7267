/* transport_probe: start an agent on each host through one transport and say what came
 * back.
 *
 *   transport_probe [--transport auto|ssh|openssh] [-p PORT] [-i KEY]
 * [--accept-new-hosts]
 *                   [--launch-agent PATH] [--own-agent PATH] [--no-push] [--timeout S]
 *                   [--flood BYTES] [--feed BYTES] [-q] [user@]host,...
 *
 * One line a host: "HOST up VERSION HOSTNAME", its notes "HOST note TEXT", or its
 * failure "HOST ID TEXT" and "HOST hint TEXT"; then times.  --flood and --feed need
 * fake_agent: bytes from each host, and to it.  Exit status: how many hosts failed. */
#include <event2/event.h>
#include <getopt.h>

#include "common/wire.h"
#include "launcher/transport/lookup.h"
#include "launcher/transport/ssh_pool.h"
#include "launcher/transport/transport.h"

struct peer {
	struct target target;
	struct conn *conn;
	const struct transport *transport;
	struct buf in;
	bool up, failed, gone;
	size_t flood_left, feed_left;
	double at_ms;
};

static struct event_base *base;
static struct transport_setup setup;
static struct peer *peers;
static size_t npeers, flood_bytes, feed_bytes;
static int failures;
static bool quiet;
static struct lookup_answer *looked;
static uint64_t t0;

/* A thread may be inside getaddrinfo(), which reads the environment: in the transports
 * nothing changes it. */
static int refuse(const char *function, const char *name)
{
	fprintf(stderr, "%s(\"%s\") while threads may run\n", function, name);
	abort();
}

int setenv(const char *name, const char *value, int replace)
{
	(void)value;
	(void)replace;
	return refuse("setenv", name);
}

int unsetenv(const char *name)
{
	return refuse("unsetenv", name);
}

int putenv(char *text)
{
	return refuse("putenv", text);
}

static double since(void)
{
	return (double)(clock_ns() - t0) / 1e6;
}

static void leave(struct peer *p)
{
	p->gone = true;
	if (p->conn)
		p->transport->close(p->conn);
	p->conn = NULL;
	for (size_t i = 0; i < npeers; i++)
		if (!peers[i].gone)
			return;
	event_base_loopbreak(base);
}

static void feed(struct peer *p)
{
	static char zeros[65536];

	while (p->feed_left) {
		size_t part = p->feed_left < sizeof zeros ? p->feed_left : sizeof zeros;
		size_t done = p->transport->send(p->conn, zeros, part);

		p->feed_left -= done;
		if (done < part)
			return;
	}
}

static void on_hello(struct peer *p, const struct wire_frame *f)
{
	struct wire_hello m;
	char line[64];
	int n;

	if (wire_unpack_hello(&m, f->payload, f->n, NULL)) {
		printf("%s bad hello\n", p->target.name);
		leave(p);
		return;
	}
	p->up = true;
	p->at_ms = since();
	if (!quiet)
		printf("%s up %s\n", p->target.name, m.version);
	n = snprintf(line, sizeof line, "%zu %zu\n", flood_bytes, feed_bytes);
	if (flood_bytes || feed_bytes)
		p->transport->send(p->conn, line, (size_t)n);
	p->flood_left = flood_bytes;
	p->feed_left = feed_bytes;
	feed(p);
}

static void on_log(struct peer *p, const struct wire_frame *f)
{
	struct wire_log m;

	if (!wire_unpack_log(&m, f->payload, f->n, NULL))
		printf("%s note %s\n", p->target.name, m.text);
}

static void bytes(void *ctx, const void *data, size_t n)
{
	struct peer *p = ctx;
	struct wire_frame f;
	long used = WIRE_MAGIC_BYTES;

	if (p->up && p->flood_left) {
		p->flood_left -= n < p->flood_left ? n : p->flood_left;
		if (!p->flood_left && !p->feed_left)
			leave(p);
		return;
	}
	buf_add(&p->in, data, n);
	if (!p->up &&
	    (p->in.len < WIRE_MAGIC_BYTES || wire_find_magic(buf_head(&p->in), 8)))
		printf("%s: no magic at the start\n", p->target.name);
	if (!p->up)
		buf_drop(&p->in, (size_t)used);
	while ((used = wire_next_from(WIRE_AGENT, &f, buf_head(&p->in), p->in.len,
				      NULL)) > 0) {
		if (f.type == WIRE_hello)
			on_hello(p, &f);
		else if (f.type == WIRE_log)
			on_log(p, &f);
		buf_drop(&p->in, (size_t)used);
	}
	if (p->up && !p->flood_left && !p->feed_left &&
	    (!feed_bytes || p->in.len || used < 0))
		leave(p);
}

static void writable(void *ctx)
{
	struct peer *p = ctx;

	if (p->up)
		feed(p);
}

static void ended(void *ctx, const struct transport_end *end);

static const struct transport_events events = { bytes, writable, ended };

static void ended(void *ctx, const struct transport_end *end)
{
	struct peer *p = ctx;

	if (end->needs_openssh) {
		p->transport->close(p->conn);
		p->transport = &transport_openssh;
		p->conn = p->transport->start(&setup, &p->target, &events, p);
		return;
	}
	p->failed = true;
	failures++;
	if (end->err.id == ERR_NONE)
		printf("%s ended %d '%s'\n", p->target.name, end->status, end->said);
	else
		printf("%s %s %s\n%s hint %s\n", p->target.name, err_name(end->err.id),
		       end->err.text, p->target.name, end->err.hint);
	p->at_ms = since();
	leave(p);
}

static void add_peers(char *list)
{
	char *one;

	while ((one = strsep(&list, ","))) {
		char *at = strchr(one, '@');

		peers = xreallocarray(peers, npeers + 1, sizeof *peers);
		peers[npeers] = (struct peer){ 0 };
		if (at)
			*at = '\0';
		peers[npeers].target.user = at ? one : NULL;
		peers[npeers++].target.name = at ? at + 1 : one;
	}
}

static void look_up(void)
{
	const char **names = xcalloc(npeers, sizeof *names);
	struct lookup_answer *r = xcalloc(npeers, sizeof *r);

	for (size_t i = 0; i < npeers; i++)
		names[i] = peers[i].target.name;
	lookup_all(r, names, npeers, clock_ms() + 20000);
	for (size_t i = 0; i < npeers; i++) {
		peers[i].target.addr = r[i].addr;
		peers[i].target.naddr = r[i].naddr;
	}
	free(names);
	looked = r;
}

static const struct transport *choose(const char *name, const struct target *t)
{
	struct str why = { 0 };
	const struct transport *found;

	if (!strcmp(name, "ssh"))
		return &transport_ssh;
	if (!strcmp(name, "openssh"))
		return &transport_openssh;
	found = transport_remote(&setup, t, &why);
	if (why.len)
		printf("%s through %s: %s\n", t->name, found->name, why.s);
	str_free(&why);
	return found;
}

static const struct option options[] = {
	{ "transport", required_argument, NULL, 't' },
	{ "accept-new-hosts", no_argument, NULL, 'a' },
	{ "launch-agent", required_argument, NULL, 'l' },
	{ "own-agent", required_argument, NULL, 'o' },
	{ "no-push", no_argument, NULL, 'n' },
	{ "timeout", required_argument, NULL, 'T' },
	{ "flood", required_argument, NULL, 'f' },
	{ "feed", required_argument, NULL, 'F' },
	{ 0 },
};

static const char *read_options(int argc, char **argv)
{
	const char *transport = "auto";
	int c;

	setup.deadline_ms = clock_ms() + 30000;
	while ((c = getopt_long(argc, argv, "p:i:q", options, NULL)) != -1)
		switch (c) {
		case 'p':
			setup.ssh_port = (int)strtol(optarg, NULL, 10);
			break;
		case 'i':
			setup.identity = optarg;
			break;
		case 'q':
			quiet = true;
			break;
		case 't':
			transport = optarg;
			break;
		case 'a':
			setup.accept_new_hosts = true;
			break;
		case 'l':
			setup.agent = optarg;
			break;
		case 'o':
			setup.own_agent = optarg;
			break;
		case 'n':
			setup.no_push = true;
			break;
		case 'T':
			setup.deadline_ms =
				clock_ms() + (uint64_t)strtol(optarg, NULL, 10) * 1000;
			break;
		case 'f':
			flood_bytes = strtoul(optarg, NULL, 10);
			break;
		case 'F':
			feed_bytes = strtoul(optarg, NULL, 10);
			break;
		default:
			exit(2);
		}
	if (optind != argc - 1)
		exit(2);
	return transport;
}

int main(int argc, char **argv)
{
	const char *transport;
	double last = 0, up;

	t0 = clock_ns();
	setvbuf(stdout, NULL, _IOLBF, 0);
	transport = read_options(argc, argv);
	base = setup.base = event_base_new();
	add_peers(argv[optind]);
	look_up();
	setup.pool = ssh_pool_open(base, npeers);
	for (size_t i = 0; i < npeers; i++) {
		struct peer *p = &peers[i];

		p->transport = choose(transport, &p->target);
		p->conn = p->transport->start(&setup, &p->target, &events, p);
	}
	event_base_dispatch(base);
	for (size_t i = 0; i < npeers; i++)
		last = peers[i].at_ms > last ? peers[i].at_ms : last;
	up = since();
	fprintf(stderr,
		"%zu hosts, %d failed, last up or down after %.1f ms, all closed after "
		"%.1f ms",
		npeers, failures, last, up);
	if (flood_bytes || feed_bytes)
		fprintf(stderr, ", %.0f MB/s",
			(double)(flood_bytes + feed_bytes) * (double)npeers / 1e3 /
				(up - last));
	fprintf(stderr, "\n");
	for (size_t i = 0; i < npeers; i++)
		buf_free(&peers[i].in);
	for (size_t i = 0; i < npeers; i++)
		free(looked[i].addr);
	free(looked);
	free(peers);
	ssh_pool_close(setup.pool);
	event_base_free(base);
	return failures > 125 ? 125 : failures;
}
