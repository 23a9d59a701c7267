#include "agent/connect.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/munge.h"
#include "common/wire.h"

enum {
	CALL_WITHIN_MS = 60000, /* of the start: for `call` */
	CALL_BYTES = 16384 + WIRE_HEAD_BYTES,
	ADDRESSES_MOST = 64,
	REFUSED_MS = 3000,
	AGAIN_MS = 200,
	ANSWER_MS = 5000 /* for one try at all addresses */
};

enum try_state { TRY_CONNECTS, TRY_CALLED, TRY_FAILED };

/* One address of the launcher. */
struct
try {
	enum try_state state;
	int fd;
	struct key_side side;
	unsigned char answer[KEY_ANSWER_BYTES];
	size_t nanswer;
};

struct caller {
	unsigned char key[KEY_BYTES];
	struct sockaddr_storage addr[ADDRESSES_MOST];
	struct try try[ADDRESSES_MOST];
	size_t n;
	int error;    /* errno of the last address that failed */
	bool refused; /* an address of this round has, and no other was silent */
};

/* ---- what the launcher says ---- */

static const char no_call[] = "stdin has no message of runner's";

/* Reads from stdin what is needed, and no more than CALL_BYTES. */
static int read_call(struct buf *in, struct wire_frame *f, struct err *e)
{
	const uint64_t until = clock_ms() + CALL_WITHIN_MS;
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
	uint64_t now;
	long size;

	while (!(size = wire_next_from(WIRE_LAUNCHER, f, buf_head(in), in->len, e))) {
		ssize_t n;

		now = clock_ms();
		if (now >= until || in->len >= CALL_BYTES)
			return err_set(e, E_CALL, "no message on stdin");
		if (poll(&p, 1, (int)(until - now)) <= 0)
			continue;
		n = read(STDIN_FILENO, buf_reserve(in, CALL_BYTES),
			 CALL_BYTES - in->len);
		if (n > 0)
			in->len += (size_t)n;
		else if (!n || (errno != EINTR && errno != EAGAIN))
			return err_set(e, E_CALL, "stdin has ended");
	}
	if (size > 0 && f->type != WIRE_call)
		return err_set(e, E_CALL, "another message on stdin");
	return size < 0 ? err_set(e, E_CALL, no_call) : 0;
}

static int take_key(struct caller *c, const struct wire_call *m, struct err *e)
{
	struct str why = { 0 };

	if (m->key.n == KEY_BYTES) {
		memcpy(c->key, m->key.p, KEY_BYTES);
		return 0;
	}
	struct buf key = { 0 };
	if (!munge_unwrap(NULL, m->credential, &key, &why) && key.len == KEY_BYTES) {
		memcpy(c->key, buf_head(&key), KEY_BYTES);
		buf_free(&key);
		return 0;
	}
	err_set(e, E_CALL, str_text(&why));
	str_free(&why);
	return -1;
}

static int take_addresses(struct caller *c, const struct wire_call *m, struct err *e)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
					.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
	char port[16];

	snprintf(port, sizeof port, "%u", m->port);
	for (size_t i = 0; i < m->addresses.n && c->n < ADDRESSES_MOST; i++) {
		struct addrinfo *found;

		if (getaddrinfo(m->addresses.v[i], port, &hints, &found))
			continue;
		memcpy(&c->addr[c->n++], found->ai_addr, found->ai_addrlen);
		freeaddrinfo(found);
	}
	return c->n && m->port && m->port < 65536 ? 0
						  : err_set(e, E_CALL, "no address");
}

/* A copy of runner's agent that srun made for this start. */
static void remove_copy(void)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	if (n > 0) {
		self[n] = '\0';
		unlink(self);
	}
}

static const char *own_host(struct utsname *u)
{
	const char *name = getenv("SLURMD_NODENAME");

	if (name && *name)
		return name;
	return uname(u) ? "" : u->nodename;
}

static int take_call(struct caller *c, const struct wire_frame *f, uint64_t *until_ms,
		     struct err *e)
{
	struct utsname u;
	struct wire_call m;
	int rc;

	if (wire_unpack_call(&m, f->payload, f->n, e))
		return err_set(e, E_CALL, no_call);
	if (m.copy)
		remove_copy();
	if (strcmp(m.version, BERTH_VERSION) || m.wire != WIRE_VERSION) {
		printf("\n:berth: again %s\n", own_host(&u));
		fflush(stdout);
		err_set(e, E_AGENT_OTHER, own_host(&u), BERTH_VERSION,
			(unsigned)WIRE_VERSION, m.version, m.wire);
		wire_free_call(&m);
		return -1;
	}
	*until_ms = clock_ms() + m.within_ms;
	rc = take_key(c, &m, e);
	if (!rc)
		rc = take_addresses(c, &m, e);
	wire_free_call(&m);
	return rc;
}

/* ---- the connection ---- */

static void fail(struct caller *c, struct try *t, int error)
{
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	t->state = TRY_FAILED;
	c->error = error;
	c->refused |= error == ECONNREFUSED;
}

static void begin_try(struct caller *c, size_t i)
{
	struct try *t = &c->try[i];
	const int on = 1;

	*t = (struct try){ .state = TRY_CONNECTS };
	t->fd = socket(c->addr[i].ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
		       0);
	if (t->fd < 0) {
		fail(c, t, errno);
		return;
	}
	setsockopt(t->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(t->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	if (connect(t->fd, (const void *)&c->addr[i],
		    c->addr[i].ss_family == AF_INET ? sizeof(struct sockaddr_in)
						    : sizeof(struct sockaddr_in6)) &&
	    errno != EINPROGRESS)
		fail(c, t, errno);
}

static void send_call(struct caller *c, struct try *t)
{
	unsigned char call[KEY_CALL_BYTES];
	socklen_t n = sizeof(int);
	int error = 0;

	getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &error, &n);
	if (error) {
		fail(c, t, error);
		return;
	}
	key_call(&t->side, c->key, call);
	if (send(t->fd, call, sizeof call, MSG_NOSIGNAL) != sizeof call)
		fail(c, t, errno);
	else
		t->state = TRY_CALLED;
}

/* True: the launcher has proved to be it. */
static bool take_answer(struct caller *c, struct try *t)
{
	ssize_t n =
		recv(t->fd, t->answer + t->nanswer, sizeof t->answer - t->nanswer, 0);

	if (n <= 0) {
		if (!n || (errno != EAGAIN && errno != EINTR))
			fail(c, t, n ? errno : ECONNRESET);
		return false;
	}
	t->nanswer += (size_t)n;
	if (t->nanswer < sizeof t->answer)
		return false;
	if (key_answered(&t->side, t->answer))
		return true;
	fail(c, t, EACCES);
	return false;
}

/* Wait for something at any address.  False: there is none left, or no time. */
static bool await_any(const struct caller *c, struct pollfd *p, uint64_t until_ms)
{
	const uint64_t now = clock_ms();
	bool any = false;

	for (size_t i = 0; i < c->n; i++) {
		const struct try *t = &c->try[i];

		p[i] = (struct pollfd){ .fd = t->fd,
					.events = t->state == TRY_CONNECTS ? POLLOUT
									   : POLLIN };
		any |= t->state != TRY_FAILED;
	}
	return any && now < until_ms &&
	       (poll(p, c->n, (int)(until_ms - now)) >= 0 || errno == EINTR);
}

/* One try at all addresses.  The one that answers, or NULL. */
static struct try *try_all(struct caller *c, uint64_t until_ms)
{
	struct pollfd p[ADDRESSES_MOST];
	const uint64_t late_ms = clock_ms() + ANSWER_MS;

	until_ms = until_ms < late_ms ? until_ms : late_ms;
	c->refused = false;
	for (size_t i = 0; i < c->n; i++)
		begin_try(c, i);
	while (await_any(c, p, until_ms))
		for (size_t i = 0; i < c->n; i++) {
			struct try *t = &c->try[i];

			if (t->state == TRY_FAILED || !p[i].revents)
				continue;
			if (t->state == TRY_CONNECTS)
				send_call(c, t);
			else if (take_answer(c, t))
				return t;
		}
	for (size_t i = 0; i < c->n; i++) /* a silent address may answer later */
		c->refused = c->refused && c->try[i].state == TRY_FAILED;
	return NULL;
}

static void close_others(struct caller *c, const struct try *but)
{
	for (size_t i = 0; i < c->n; i++)
		if (&c->try[i] != but && c->try[i].fd >= 0) {
			close(c->try[i].fd);
			c->try[i].fd = -1;
		}
}

static struct try *try_until(struct caller *c, uint64_t until_ms)
{
	const uint64_t refused_ms = clock_ms() + REFUSED_MS;
	struct try *t;

	for (;;) {
		t = try_all(c, until_ms);
		close_others(c, t);
		if (t || clock_ms() >= until_ms ||
		    (c->refused && clock_ms() >= refused_ms))
			return t;
		poll(NULL, 0, AGAIN_MS);
	}
}

/* The connection becomes stdin and stdout: srun's pipes are of no use any more. */
static int take_over(struct try *t, struct key_side *side, struct err *e)
{
	struct utsname u;
	struct buf plain = { 0 }, sealed = { 0 };
	int rc = 0;

	*side = t->side;
	wire_pack_called(&plain, &(struct wire_called){ .host = own_host(&u) });
	key_seal(side, &sealed, buf_head(&plain), plain.len);
	if (send(t->fd, buf_head(&sealed), sealed.len, MSG_NOSIGNAL) !=
		    (ssize_t)sealed.len ||
	    dup2(t->fd, STDIN_FILENO) < 0 || dup2(t->fd, STDOUT_FILENO) < 0)
		rc = err_set(e, E_CALL, strerror(errno));
	close(t->fd);
	buf_free(&plain);
	buf_free(&sealed);
	return rc;
}

int connect_launcher(struct key_side *side, struct err *e)
{
	struct caller *c = xcalloc(1, sizeof *c);
	struct buf in = { 0 };
	struct wire_frame f;
	uint64_t until_ms;
	struct try *t;
	int rc = -1;

	if (key_init())
		err_set(e, E_CALL, "libsodium cannot be initialised");
	else if (!read_call(&in, &f, e) && !take_call(c, &f, &until_ms, e)) {
		t = try_until(c, until_ms);
		rc = t ? take_over(t, side, e)
		       : err_set(e, E_CALL, strerror(c->error ? c->error : ETIMEDOUT));
	}
	explicit_bzero(c, sizeof *c);
	free(c);
	if (in.data)
		explicit_bzero(in.data, in.cap);
	buf_free(&in);
	return rc;
}

void connect_own_address(char *text, size_t n)
{
	struct sockaddr_storage own = { 0 };
	socklen_t len = sizeof own;

	*text = '\0';
	if (!getsockname(STDIN_FILENO, (void *)&own, &len) &&
	    getnameinfo((const void *)&own, len, text, (socklen_t)n, NULL, 0,
			NI_NUMERICHOST))
		*text = '\0';
}

void connect_environment(void)
{
	const struct passwd *pw = getpwuid(geteuid());

	if (!pw)
		return;
	setenv("HOME", pw->pw_dir, 0);
	setenv("USER", pw->pw_name, 0);
	setenv("LOGNAME", pw->pw_name, 0);
	setenv("SHELL", pw->pw_shell, 0);
}
