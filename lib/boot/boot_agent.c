/* The agent of berth's own launcher: frames over the unix socket BERTH_AGENT. */
#include "lib/boot/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/descriptor.h"
#include "lib/base/ours.h"

enum {
	LEAVE_MS = 1000,    /* for the agent to have seen that we left */
	BEHIND_MS = 1500,   /* for it to have asked all others */
	MISSING_MOST = 512, /* ranks in one report of a stall, */
	STALL_BYTES = 1024, /* and its text: what goes out at once or not at all */
	TICK_MS = 100
};

struct agent {
	int fd;
	unsigned rank; /* of the job */
	pthread_mutex_t asks;
	bool mute; /* an answer was late, and could be taken for another question's */
};

/* A frame that has come. */
struct frame {
	struct boot_head head;
	unsigned char *payload; /* a NUL behind its end */
	int fd;                 /* that came with it, or -1 */
};

static berth_result agent_say(berth_result rc, char *why, const char *what)
{
	snprintf(why, BOOT_WHY_BYTES, "the agent of this host %s", what);
	return rc;
}

static berth_result agent_failed(char *why, const char *what)
{
	snprintf(why, BOOT_WHY_BYTES, "%s the agent of this host: %s", what,
		 strerror(errno));
	return BERTH_SYSTEM;
}

/* ---- bytes ---- */

/* "@NAME" is an abstract name.  A rank may start programs that outlive its agent and
 * keep the name.  Another user can take the name then. */
static int connect_to(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t n = strlen(name);
	int fd, rc;

	if (*name != '@' || n > sizeof a.sun_path) {
		errno = EINVAL;
		return -1;
	}
	memcpy(a.sun_path + 1, name + 1, n - 1);
	fd = descriptor_socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0)
		return -1;
	do
		rc = connect(fd, (const struct sockaddr *)&a,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
	while (rc && errno == EINTR);
	if (!rc && ours_peer(fd))
		return fd;
	if (!rc)
		errno = EPERM;
	descriptor_close(fd);
	return -1;
}

static berth_result agent_put(int fd, const void *data, size_t n, char *why)
{
	const unsigned char *p = data;

	while (n) {
		ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);

		if (sent < 0 && errno != EINTR)
			return agent_failed(why, "cannot write to");
		if (sent > 0) {
			p += sent;
			n -= (size_t)sent;
		}
	}
	return BERTH_OK;
}

static berth_result put_frame(int fd, uint32_t number, const void *payload, size_t n,
			      char *why)
{
	const struct boot_head head = { (uint32_t)n, number };
	unsigned char small[sizeof head + BOOT_TEXT_BYTES];

	memcpy(small, &head, sizeof head);
	memcpy(small + sizeof head, payload, n);
	return agent_put(fd, small, sizeof head + n, why);
}

/* Puts a descriptor that came with M into *FD, and closes others. */
static void take_descriptor(struct msghdr *m, int *fd)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		int got;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
		    c->cmsg_len < CMSG_LEN(sizeof got))
			continue;
		memcpy(&got, CMSG_DATA(c), sizeof got);
		if (*fd >= 0)
			close(*fd);
		*fd = got;
	}
}

static berth_result agent_get(int from, void *data, size_t n, int *fd, char *why)
{
	unsigned char *p = data;

	while (n) {
		union {
			struct cmsghdr head;
			char room[CMSG_SPACE(sizeof(int))];
		} control;
		struct iovec part = { p, n };
		struct msghdr m = { .msg_iov = &part,
				    .msg_iovlen = 1,
				    .msg_control = &control,
				    .msg_controllen = sizeof control };
		ssize_t got = recvmsg(from, &m, MSG_CMSG_CLOEXEC);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return agent_failed(why, "cannot read from");
		take_descriptor(&m, fd);
		if (!got)
			return agent_say(BERTH_NO_PEERS, why,
					 "has ended, or turned us away");
		p += got;
		n -= (size_t)got;
	}
	return BERTH_OK;
}

static void frame_free(struct frame *f)
{
	free(f->payload);
	if (f->fd >= 0)
		close(f->fd);
	*f = (struct frame){ .fd = -1 };
}

/* Gets any frame.  BOOT_REFUSED and BOOT_AGAIN are errors. */
static berth_result get_any(int from, struct frame *f, char *why)
{
	berth_result rc;

	*f = (struct frame){ .fd = -1 };
	rc = agent_get(from, &f->head, sizeof f->head, &f->fd, why);
	if (rc)
		return rc;
	if (f->head.bytes > BOOT_FRAME_BYTES_MAX)
		return agent_say(BERTH_SYSTEM, why, "says more than its limit");
	f->payload = calloc((size_t)f->head.bytes + 1, 1);
	if (!f->payload)
		return boot_out_of_memory(why);
	rc = agent_get(from, f->payload, f->head.bytes, &f->fd, why);
	if (rc)
		return rc;
	if (f->head.number == BOOT_REFUSED) {
		snprintf(why, BOOT_WHY_BYTES, "%s", (const char *)f->payload);
		return BERTH_NO_PEERS;
	}
	if (f->head.number == BOOT_AGAIN) {
		snprintf(why, BOOT_WHY_BYTES, "%s", (const char *)f->payload);
		return BERTH_PEER_LOST;
	}
	return BERTH_OK;
}

static berth_result odd_answer(char *why)
{
	return agent_say(BERTH_SYSTEM, why, "does not say what was asked");
}

/* Gets the frame NUMBER that answers a request, of at least LEAST bytes. */
static berth_result get_frame(int from, struct frame *f, uint32_t number, size_t least,
			      char *why)
{
	berth_result rc = get_any(from, f, why);

	if (!rc && (f->head.number != number || f->head.bytes < least))
		rc = odd_answer(why);
	return rc;
}

/* ---- joining ---- */

static bool agent_seen(void)
{
	const char *name = getenv("BERTH_AGENT");
	int fd = name && getenv("BERTH_RANK") ? connect_to(name) : -1;

	if (fd < 0)
		return false;
	descriptor_close(fd);
	return true;
}

/* Cuts the LEFT bytes at P into N texts, each with its NUL.  V gets them. */
static bool cut_texts(const char *p, size_t left, size_t n, char **v)
{
	for (size_t i = 0; i < n; i++) {
		const char *end = left ? memchr(p, '\0', left) : NULL;

		if (!end)
			return false;
		v[i] = (char *)p;
		left -= (size_t)(end + 1 - p);
		p = end + 1;
	}
	return !left;
}

/* Reads the hosts of ranks and the names of hosts, of BYTES at P. */
static berth_result fill_hosts(struct boot_world *w, const unsigned char *p,
			       size_t bytes, char *why)
{
	const size_t list = (size_t)w->size * sizeof *w->host;
	char **names = calloc(w->hosts, sizeof *names);

	w->host = malloc(list);
	w->host_name = calloc(w->hosts, sizeof *w->host_name);
	if (!names || !w->host || !w->host_name) {
		free(names);
		return boot_out_of_memory(why);
	}
	memcpy(w->host, p, list);
	if (!cut_texts((const char *)p + list, bytes - list, w->hosts, names)) {
		free(names);
		return agent_say(BERTH_SYSTEM, why, "names too few hosts");
	}
	for (unsigned i = 0; i < w->hosts; i++) {
		w->host_name[i] = strdup(names[i]);
		if (!w->host_name[i]) {
			free(names);
			return boot_out_of_memory(why);
		}
	}
	free(names);
	for (unsigned i = 0; i < w->size; i++)
		if (w->host[i] >= w->hosts)
			return agent_say(BERTH_SYSTEM, why,
					 "names a host that is none");
	return BERTH_OK;
}

static berth_result fill_world(struct boot_world *w, const struct frame *f, char *why)
{
	struct boot_who who;

	memcpy(&who, f->payload, sizeof who);
	if (who.rank >= who.size || who.local_rank >= who.local_size ||
	    who.local_size > who.size || who.cross_rank >= who.cross_size ||
	    who.cross_size > who.hosts || who.hosts > who.size ||
	    (f->head.bytes - sizeof who) / sizeof(uint32_t) < who.size)
		return agent_say(BERTH_SYSTEM, why, "says what cannot be of the job");
	*w = (struct boot_world){ .rank = who.rank,
				  .size = who.size,
				  .local_rank = who.local_rank,
				  .local_size = who.local_size,
				  .cross_rank = who.cross_rank,
				  .cross_size = who.cross_size,
				  .hosts = who.hosts,
				  .epoch = who.epoch,
				  .memory = -1 };
	memcpy(w->key, who.key, sizeof w->key);
	explicit_bzero(&who, sizeof who);
	return fill_hosts(w, f->payload + sizeof who, f->head.bytes - sizeof who, why);
}

/* ---- waiting for the others ---- */

static size_t ranks_in(const struct frame *f, unsigned *rank, size_t most)
{
	size_t n = 0;

	for (; n < most && n < f->head.bytes / sizeof(uint32_t); n++) {
		uint32_t r;

		memcpy(&r, f->payload + n * sizeof r, sizeof r);
		rank[n] = r;
	}
	return n;
}

/* The missing ranks are those of this world.  While there is no world yet, they are
 * those of the job. */
static berth_result tell_missing(const struct boot_world *w, const struct frame *f,
				 const struct boot_patience *p, char *why)
{
	unsigned rank[MISSING_MOST];
	const size_t n = ranks_in(f, rank, MISSING_MOST);

	for (size_t i = 0; i < n && w->size; i++)
		if (rank[i] >= w->size)
			return odd_answer(why);
	p->missing(p->ctx, rank, n);
	return BERTH_OK;
}

/* Waits for all ranks.  F becomes the frame that ends the wait. */
static berth_result await_all(const struct agent *a, const struct boot_world *w,
			      const struct boot_patience *p, struct frame *f, char *why)
{
	struct pollfd ready = { .fd = a->fd, .events = POLLIN };
	bool asked = false; /* which ranks are missing, and there is no answer yet */
	berth_result rc = BERTH_OK;

	while (!rc) {
		if (poll(&ready, 1, TICK_MS) <= 0) {
			rc = p->tick(p->ctx);
			if (rc && rc != BERTH_BUSY)
				snprintf(why, BOOT_WHY_BYTES,
					 "other ranks did not come");
			if (rc != BERTH_BUSY)
				continue;
			rc = asked ? BERTH_OK
				   : put_frame(a->fd, BOOT_MISSING_REQUEST, "", 0, why);
			asked = true;
			continue;
		}
		rc = get_any(a->fd, f, why);
		if (rc || !asked || f->head.number != BOOT_MISSING)
			break;
		asked = false;
		rc = tell_missing(w, f, p, why);
		frame_free(f);
	}
	return rc;
}

/* ---- the world ---- */

/* If PATIENCE is not NULL, the rank comes from another world. */
static berth_result ask_world(const struct agent *a, struct boot_world *w,
			      const struct boot_patience *patience, char *why)
{
	const struct boot_join join = { BOOT_VERSION, a->rank,
					patience ? BOOT_FOLLOWS : 0,
					(uint32_t)w->epoch };
	struct frame f = { .fd = -1 };
	berth_result rc = put_frame(a->fd, BOOT_JOIN, &join, sizeof join, why);

	if (!rc)
		rc = patience ? await_all(a, w, patience, &f, why)
			      : get_any(a->fd, &f, why);
	if (!rc &&
	    (f.head.number != BOOT_WORLD || f.head.bytes < sizeof(struct boot_who)))
		rc = odd_answer(why);
	if (!rc)
		rc = fill_world(w, &f, why);
	if (f.payload)
		explicit_bzero(f.payload, f.head.bytes);
	frame_free(&f);
	return rc;
}

static berth_result agent_follow(void **state, struct boot_world *w,
				 const struct boot_patience *patience, char *why)
{
	const char *name = getenv("BERTH_AGENT"), *rank = getenv("BERTH_RANK");
	struct agent *a = calloc(1, sizeof *a);
	berth_result rc;

	*w = (struct boot_world){ .epoch = w->epoch, .memory = -1 };
	if (!a)
		return boot_out_of_memory(why);
	a->rank = rank ? (unsigned)strtoul(rank, NULL, 10) : 0;
	a->fd = connect_to(name ? name : "");
	if (a->fd < 0) {
		rc = agent_failed(why, "cannot reach");
		free(a);
		return rc;
	}
	rc = ask_world(a, w, patience, why);
	if (rc) {
		boot_world_free(w);
		descriptor_close(a->fd);
		free(a);
		return rc;
	}
	pthread_mutex_init(&a->asks, NULL);
	*state = a;
	return BERTH_OK;
}

static berth_result agent_join(void **state, struct boot_world *w,
			       const struct berth_bootstrap *given, char *why)
{
	(void)given;
	return agent_follow(state, w, NULL, why);
}

/* ---- memory and fence ---- */

/* Is FD memory of BYTES that nobody can take away while this process uses it? */
static bool is_sealed(int fd, size_t bytes)
{
	const int want = F_SEAL_SHRINK | F_SEAL_SEAL;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	return seals >= 0 && (seals & want) == want && !fstat(fd, &st) &&
	       (size_t)st.st_size == bytes;
}

static berth_result agent_memory(void *state, struct boot_world *w, size_t bytes,
				 char *why)
{
	const struct agent *a = state;
	const uint64_t size = bytes;
	struct frame f = { .fd = -1 };
	berth_result rc = put_frame(a->fd, BOOT_MEMORY, &size, sizeof size, why);

	if (!rc)
		rc = get_frame(a->fd, &f, BOOT_MEMORY, sizeof size, why);
	if (!rc && (f.fd < 0 || !is_sealed(f.fd, bytes)))
		rc = agent_say(BERTH_SYSTEM, why, "gave no shared memory");
	if (!rc) {
		w->memory = f.fd;
		w->memory_bytes = bytes;
		f.fd = -1;
	}
	frame_free(&f);
	return rc;
}

/* Copies the texts of all ranks in F into one block. */
static berth_result copy_texts(const struct boot_world *w, const struct frame *f,
			       char ***all, char *why)
{
	const size_t head = (size_t)w->size * sizeof(char *);
	const size_t bytes = f->head.bytes - sizeof w->clock_offset_ns;
	char **v = malloc(head + bytes);

	if (!v)
		return boot_out_of_memory(why);
	memcpy(v + w->size, f->payload + sizeof w->clock_offset_ns, bytes);
	if (!cut_texts((char *)(v + w->size), bytes, w->size, v)) {
		free(v);
		return agent_say(BERTH_SYSTEM, why, "did not say what all ranks said");
	}
	*all = v;
	return BERTH_OK;
}

static berth_result agent_fence(void *state, struct boot_world *w, const char *mine,
				const struct boot_patience *patience, char ***all,
				char *why)
{
	const struct agent *a = state;
	const size_t bytes = strlen(mine) + 1;
	struct frame f = { .fd = -1 };
	berth_result rc;

	if (bytes > BOOT_TEXT_BYTES) {
		snprintf(why, BOOT_WHY_BYTES, "a text of %zu bytes for the others",
			 bytes);
		return BERTH_INVALID;
	}
	rc = put_frame(a->fd, BOOT_FENCE, mine, bytes, why);
	if (!rc)
		rc = await_all(a, w, patience, &f, why);
	if (!rc &&
	    (f.head.number != BOOT_ALL || f.head.bytes < sizeof w->clock_offset_ns))
		rc = odd_answer(why);
	if (!rc) {
		memcpy(&w->clock_offset_ns, f.payload, sizeof w->clock_offset_ns);
		rc = copy_texts(w, &f, all, why);
	}
	frame_free(&f);
	return rc;
}

/* ---- afterwards ---- */

/* Makes one call, and a small one, so that all of it is sent or nothing is. */
static void agent_stall(void *state, const unsigned *missing, size_t n,
			const char *text)
{
	const struct agent *a = state;
	unsigned char frame[sizeof(struct boot_head) +
			    (1 + MISSING_MOST) * sizeof(uint32_t) + STALL_BYTES];
	unsigned char *p = frame + sizeof(struct boot_head);
	const size_t most = strnlen(text, STALL_BYTES - 1);
	const uint32_t count = (uint32_t)(n < MISSING_MOST ? n : MISSING_MOST);
	struct boot_head head = { 0, BOOT_STALL };

	memcpy(p, &count, sizeof count);
	p += sizeof count;
	for (uint32_t i = 0; i < count; i++, p += sizeof count) {
		const uint32_t rank = missing[i];

		memcpy(p, &rank, sizeof rank);
	}
	memcpy(p, text, most);
	p[most] = '\0';
	p += most + 1;
	head.bytes = (uint32_t)(p - frame - (ptrdiff_t)sizeof head);
	memcpy(frame, &head, sizeof head);
	send(a->fd, frame, (size_t)(p - frame), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static size_t agent_behind(void *state, unsigned *rank, size_t most)
{
	const struct boot_head head = { 0, BOOT_MISSING_REQUEST };
	struct agent *a = state;
	struct pollfd p = { .fd = a->fd, .events = POLLIN };
	struct frame f = { .fd = -1 };
	char why[BOOT_WHY_BYTES];
	size_t n = 0;

	pthread_mutex_lock(&a->asks);
	if (!a->mute && send(a->fd, &head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT) ==
				sizeof head) {
		if (poll(&p, 1, BEHIND_MS) <= 0 ||
		    get_frame(a->fd, &f, BOOT_MISSING, 0, why))
			a->mute = true;
		else
			n = ranks_in(&f, rank, most);
		frame_free(&f);
	}
	pthread_mutex_unlock(&a->asks);
	return n;
}

static void agent_elastic(void *state, bool can)
{
	const struct agent *a = state;
	char why[BOOT_WHY_BYTES]; /* a later call meets it again */

	put_frame(a->fd, BOOT_ELASTIC, &(uint32_t){ can }, sizeof(uint32_t), why);
}

static int agent_alive(void *state)
{
	struct agent *a = state;
	struct frame f = { .fd = -1 };
	char why[BOOT_WHY_BYTES]; /* then it is seen later that this process dies */
	int fd = -1;

	pthread_mutex_lock(&a->asks);
	if (!a->mute && !put_frame(a->fd, BOOT_ALIVE, "", 0, why) &&
	    !get_frame(a->fd, &f, BOOT_ALIVE, 0, why) && f.fd >= 0 &&
	    is_sealed(f.fd, BOOT_ALIVE_BYTES)) {
		fd = f.fd;
		f.fd = -1;
	}
	frame_free(&f);
	pthread_mutex_unlock(&a->asks);
	return fd;
}

/* Waits until the agent has closed.  The agent must not take a joining that follows for
 * a second one. */
static void agent_leave(void *state)
{
	struct agent *a = state;
	struct pollfd p = { .fd = a->fd, .events = POLLIN };
	const struct boot_head head = { 0, BOOT_LEAVE };
	char rest[256];

	if (send(a->fd, &head, sizeof head, MSG_NOSIGNAL) == sizeof head)
		while (poll(&p, 1, LEAVE_MS) > 0 && read(a->fd, rest, sizeof rest) > 0)
			;
	descriptor_close(a->fd);
	pthread_mutex_destroy(&a->asks);
	free(a);
}

const struct boot boot_agent = {
	.name = "agent",
	.seen = agent_seen,
	.join = agent_join,
	.follow = agent_follow,
	.memory = agent_memory,
	.fence = agent_fence,
	.stall = agent_stall,
	.missing_ranks = agent_behind,
	.elastic = agent_elastic,
	.alive = agent_alive,
	.leave = agent_leave,
};
