#include "agent/connect.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pwd.h>
#include <unistd.h>

#include "agent/copy.h"

enum {
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
	struct call call;
	struct try try[CALL_ADDRESSES_MOST];
	int error;    /* errno of the last address that failed */
	bool refused; /* an address of this round has, and no other was silent */
};

/* ---- the connection ---- */

static void connect_fail(struct caller *c, struct try *t, int error)
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
	t->fd = socket(c->call.addr[i].ss_family,
		       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (t->fd < 0) {
		connect_fail(c, t, errno);
		return;
	}
	setsockopt(t->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(t->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	if (connect(t->fd, (const void *)&c->call.addr[i],
		    c->call.addr[i].ss_family == AF_INET
			    ? sizeof(struct sockaddr_in)
			    : sizeof(struct sockaddr_in6)) &&
	    errno != EINPROGRESS)
		connect_fail(c, t, errno);
}

static void send_call(struct caller *c, struct try *t)
{
	unsigned char call[KEY_CALL_BYTES];
	socklen_t n = sizeof(int);
	int error = 0;

	getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &error, &n);
	if (error) {
		connect_fail(c, t, error);
		return;
	}
	key_call(&t->side, c->call.key, call);
	if (send(t->fd, call, sizeof call, MSG_NOSIGNAL) != sizeof call)
		connect_fail(c, t, errno);
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
			connect_fail(c, t, n ? errno : ECONNRESET);
		return false;
	}
	t->nanswer += (size_t)n;
	if (t->nanswer < sizeof t->answer)
		return false;
	if (key_answered(&t->side, t->answer))
		return true;
	connect_fail(c, t, EBADMSG);
	return false;
}

/* Wait for something at any address.  False: there is none left, or no time. */
static bool await_any(const struct caller *c, struct pollfd *p, uint64_t until_ms)
{
	const uint64_t now = clock_ms();
	bool any = false;

	for (size_t i = 0; i < c->call.n; i++) {
		const struct try *t = &c->try[i];

		p[i] = (struct pollfd){ .fd = t->fd,
					.events = t->state == TRY_CONNECTS ? POLLOUT
									   : POLLIN };
		any |= t->state != TRY_FAILED;
	}
	return any && now < until_ms &&
	       (poll(p, c->call.n, (int)(until_ms - now)) >= 0 || errno == EINTR);
}

/* One try at all addresses.  The one that answers, or NULL. */
static struct try *try_all(struct caller *c, uint64_t until_ms)
{
	struct pollfd p[CALL_ADDRESSES_MOST];
	const uint64_t late_ms = clock_ms() + ANSWER_MS;

	until_ms = until_ms < late_ms ? until_ms : late_ms;
	c->refused = false;
	for (size_t i = 0; i < c->call.n; i++)
		begin_try(c, i);
	while (await_any(c, p, until_ms))
		for (size_t i = 0; i < c->call.n; i++) {
			struct try *t = &c->try[i];

			if (t->state == TRY_FAILED || !p[i].revents)
				continue;
			if (t->state == TRY_CONNECTS)
				send_call(c, t);
			else if (take_answer(c, t))
				return t;
		}
	for (size_t i = 0; i < c->call.n; i++) /* a silent address may answer later */
		c->refused = c->refused && c->try[i].state == TRY_FAILED;
	return NULL;
}

static struct try *try_until(struct caller *c, uint64_t until_ms)
{
	const uint64_t refused_ms = clock_ms() + REFUSED_MS;
	struct try *t;

	for (;;) {
		t = try_all(c, until_ms);
		for (size_t i = 0; i < c->call.n; i++)
			if (&c->try[i] != t && c->try[i].fd >= 0) {
				close(c->try[i].fd);
				c->try[i].fd = -1;
			}
		if (t || clock_ms() >= until_ms ||
		    (c->refused && clock_ms() >= refused_ms))
			return t;
		poll(NULL, 0, AGAIN_MS);
	}
}

/* The connection becomes stdin and stdout: srun's pipes are of no use any more. */
static int take_over(struct try *t, struct key_side *side, struct err *e)
{
	struct buf plain = { 0 }, sealed = { 0 };
	int rc = 0;

	*side = t->side;
	wire_pack_called(&plain, &(struct wire_called){ .host = call_own_host() });
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

int connect_launcher(const struct call_how *how, struct key_side *side, struct err *e)
{
	struct caller *c = xcalloc(1, sizeof *c);
	struct str where = { 0 };
	struct try *t;
	int rc = -1;

	if (key_init()) {
		err_set(e, E_CALL, "libsodium cannot be initialised");
	} else if (!call_read(&c->call, how, e)) {
		t = try_until(c, clock_ms() + c->call.within_ms);
		if (t && c->call.copy)
			copy_remove("/proc/self/exe");
		if (t) {
			rc = take_over(t, side, e);
		} else { /* the user has to see where: maybe not where runner is */
			call_where(&where, &c->call);
			err_set(e, E_CALL_AT, str_text(&where),
				c->error == EBADMSG
					? "the answer is not runner's"
					: strerror(c->error ? c->error : ETIMEDOUT));
			str_free(&where);
		}
	} else if (e->id == E_AGENT_OTHER) {
		printf("\n:berth: again %s\n", call_own_host());
		fflush(stdout);
	}
	explicit_bzero(c, sizeof *c);
	free(c);
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
