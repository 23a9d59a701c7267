/* libFuzzer on what ranks say to the agent's socket (agent/pmi/server.h), and on what
 * the launcher says of it: three connections and a script of what happens on them,
 * ranks that end included.
 *
 * Each byte of the input is a step: its low two bits say which connection, the others
 * what.  What the agent sends must be frames; no descriptor may be left. */
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "agent/pmi/server_internal.h"
#include "common/job.h"
#include "fuzz.h"
#include "lib/boot/boot.def"

enum { PEERS = 3, ALL_RANKS = 4 };

static struct event_base *base;
static struct buf out;
static struct server *server;
static int peer[PEERS];

static size_t count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Ranks 1 and 0 of two, or of four on two hosts. */
static void make_job(struct wire_job *job, bool two_hosts)
{
	static const uint32_t ranks[] = { 1, 0 }, zero[2], one[] = { 1, 1 };
	static const char key[WIRE_KEY_BYTES];

	*job = (struct wire_job){ .epoch = 1,
				  .np = two_hosts ? ALL_RANKS : 2,
				  .nodes = two_hosts ? 2 : 1,
				  .host = "here",
				  .key = { key, sizeof key },
				  .ranks = { ranks, 2 },
				  .cross_ranks = { zero, 2 },
				  .cross_sizes = { one, 2 } };
}

static void peer_connect(int *fd)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *name = server_name(server);
	size_t n = strlen(name);

	if (*fd >= 0)
		return;
	memcpy(a.sun_path + 1, name + 1, n - 1);
	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (connect(*fd, (const struct sockaddr *)&a,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)))
		abort();
}

static void peer_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void peer_say(int fd, uint32_t number, const void *payload, size_t n)
{
	const struct boot_head head = { (uint32_t)n, number };

	if (fd < 0)
		return;
	send(fd, &head, sizeof head, MSG_NOSIGNAL);
	send(fd, payload, n, MSG_NOSIGNAL);
}

/* What a rank would say, one step of it. */
static void peer_honest(int fd, unsigned what)
{
	const struct boot_join join = { BOOT_VERSION, what & 1, what >> 5 & 1, 0 };
	const uint64_t bytes = 1 << 16;
	const uint32_t stall[] = { 1, 0, 'x' };

	switch (what >> 1 & 15) {
	case 0:
		peer_say(fd, BOOT_JOIN, &join, sizeof join);
		break;
	case 1:
		peer_say(fd, BOOT_MEMORY, &bytes, sizeof bytes);
		break;
	case 2:
		peer_say(fd, BOOT_FENCE, "abc", 4);
		break;
	case 3:
		peer_say(fd, BOOT_STALL, stall, sizeof stall);
		break;
	case 4:
		peer_say(fd, BOOT_MISSING_REQUEST, NULL, 0);
		break;
	case 6:
		peer_say(fd, BOOT_ELASTIC, &(uint32_t){ what & 1 }, sizeof(uint32_t));
		break;
	case 7:
		peer_say(fd, BOOT_ALIVE, NULL, 0);
		break;
	default:
		peer_say(fd, BOOT_LEAVE, NULL, 0);
	}
}

/* All that can happen now does, and the ranks read. */
static void turn(void)
{
	static char room[65536];
	struct wire_frame f;
	long n;

	for (int i = 0; i < 3; i++)
		event_base_loop(base, EVLOOP_NONBLOCK);
	for (int i = 0; i < PEERS; i++)
		while (peer[i] >= 0 && read(peer[i], room, sizeof room) > 0)
			;
	while (out.len) {
		n = wire_next_from(WIRE_AGENT, &f, buf_head(&out), out.len, NULL);
		if (n <= 0)
			abort();
		buf_drop(&out, (size_t)n);
	}
}

/* Up to N bytes of the input, into a block of their own. */
static uint8_t *take(const uint8_t **p, const uint8_t *end, size_t *n)
{
	uint8_t *copy;

	*n = *p < end ? *(*p)++ : 0;
	*n = *n < (size_t)(end - *p) ? *n : (size_t)(end - *p);
	copy = xmalloc(*n + 1);
	memcpy(copy, *p, *n);
	*p += *n;
	return copy;
}

static void launcher_says(unsigned which, const uint8_t *payload, size_t n)
{
	static const unsigned types[] = { WIRE_host_map, WIRE_exchange_data, WIRE_lost,
					  WIRE_query,    WIRE_missing,       WIRE_world,
					  WIRE_wanted };
	const struct wire_frame f = { types[which % 7], payload, n };

	server_frame(server, &f, NULL);
}

static void launcher_honest(unsigned which, const struct wire_job *job)
{
	static const uint32_t hosts[] = { 0, 0, 1, 1 }, lost[] = { 2 }, app = 0,
			      some[] = { 0, 1 };
	static const char *const names[] = { "a", "b" };
	struct wire_frame f;
	struct buf b = { 0 };

	if (which == 0)
		wire_pack_host_map(&b, &(struct wire_host_map){ 1,
								{ hosts, job->np },
								{ names, job->nodes },
								{ names, job->nodes },
								{ &app, 1 } });
	else if (which == 4 || which == 5)
		wire_pack_world(&b,
				&(struct wire_world){ 1, which, { some, which - 3 } });
	else if (which < 4)
		wire_pack_exchange_data(&b, &(struct wire_exchange_data){
						    .epoch = 1,
						    .use = EXCHANGE_INIT,
						    .number = which,
						    .last = 1,
						    .data = { "a\0b\0c\0d", 8 } });
	else
		wire_pack_lost(&b, &(struct wire_lost){ 1,
							{ lost, job->np / 4 },
							which,
							which & 1,
							which >> 1 & 1 });
	if (wire_next_from(WIRE_LAUNCHER, &f, buf_head(&b), b.len, NULL) > 0)
		server_frame(server, &f, NULL);
	buf_free(&b);
}

/* Into the newest memory, at its beginning or where its head says that operations
 * are. */
static void write_memory(const uint8_t *bytes, size_t n)
{
	struct boot_memory head = { .magic = BOOT_MAGIC,
				    .version = BOOT_VERSION,
				    .size = ALL_RANKS / 2,
				    .local_size = 2,
				    .rank_at = 1024,
				    .lost_at = 2048,
				    .record_at = 4096 };
	int fd = server->round ? server->round->memory : -1;

	memcpy(&head, bytes, n < sizeof head ? n : sizeof head);
	if (fd >= 0 &&
	    (pwrite(fd, &head, sizeof head, 0) < 0 || pwrite(fd, bytes, n, 1024) < 0 ||
	     pwrite(fd, bytes, n, 4096) < 0))
		abort();
}

static void step(unsigned what, const struct wire_job *job, const uint8_t **p,
		 const uint8_t *end)
{
	int *fd = &peer[(what & 3) % PEERS];
	uint8_t *bytes;
	size_t n;

	switch (what >> 2) {
	case 0:
		peer_connect(fd);
		break;
	case 1:
		peer_close(fd);
		break;
	case 2:
		bytes = take(p, end, &n);
		if (*fd >= 0)
			send(*fd, bytes, n, MSG_NOSIGNAL);
		free(bytes);
		break;
	case 3:
		bytes = take(p, end, &n);
		launcher_says(what, bytes, n);
		free(bytes);
		break;
	case 4:
		server_ended(server, what & 1, what & 2);
		break;
	case 5:
	case 6:
		launcher_honest((what >> 2 & 1) * 4 + (what & 3), job);
		break;
	case 7:
		if (what & 1)
			return; /* no turn between this step and the next */
		bytes = take(p, end, &n);
		write_memory(bytes, n);
		free(bytes);
		break;
	case 8:
		server_ended(server, what & 1, true);
		server_another_life(server, what & 1, what & 2);
		break;
	default:
		peer_honest(*fd, (what >> 2) % 14);
	}
	turn();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static size_t descriptors;
	const uint8_t *p = data, *end = data + size;
	struct wire_job job;

	if (!size || size > 4096)
		return 0;
	if (!base)
		base = event_base_new();
	make_job(&job, *p++ & 1);
	server = server_open(base, &out, &job);
	for (int i = 0; i < PEERS; i++)
		peer[i] = -1;
	while (p < end) {
		const unsigned what = *p++;

		step(what, &job, &p, end);
	}
	turn();
	for (int i = 0; i < PEERS; i++)
		peer_close(&peer[i]);
	server_free(server);
	if (!descriptors)
		descriptors = count_descriptors();
	if (count_descriptors() != descriptors)
		abort();
	return 0;
}
