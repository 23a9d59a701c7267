#include "agent/pmi/pmix_child_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/pmi/pmix_accept.h"

extern char **environ;

struct px_server px;

/* A call that the main thread is to make. */
struct call {
	px_op_done *done;
	void *ctx;
	struct call *next;
};

static struct {
	int fd;     /* to the host */
	int called; /* readable: there are calls to make */
	struct buf in;
	pthread_mutex_t sending, calling;
	struct call *call, **last_call;
} child = { .sending = PTHREAD_MUTEX_INITIALIZER,
	    .calling = PTHREAD_MUTEX_INITIALIZER,
	    .last_call = &child.call };

/* ---- between threads and the host ---- */

/* The host is gone: nobody else may be there to remove the folders.  libpmix's threads
 * run on until the exit. */
static void __attribute__((noreturn)) leave(void)
{
	pmix_folders_remove(&px.folders);
	_exit(0);
}

/* The guardian is dead, and so the host soon. */
static void on_alarm(int signo)
{
	enum { LEAVES_S = 2 };
	static volatile sig_atomic_t times;

	(void)signo;
	if (times++)
		_exit(1);
	alarm(LEAVES_S);
}

void child_say(struct buf *frame)
{
	pthread_mutex_lock(&child.sending);
	while (frame->len) {
		ssize_t n = send(child.fd, buf_head(frame), frame->len, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			leave();
		if (n > 0)
			buf_drop(frame, (size_t)n);
	}
	pthread_mutex_unlock(&child.sending);
	buf_free(frame);
}

void child_later(px_op_done *done, void *ctx)
{
	struct call *c = xmalloc(sizeof *c);

	if (!done) {
		free(c);
		return;
	}
	*c = (struct call){ done, ctx, NULL };
	pthread_mutex_lock(&child.calling);
	*child.last_call = c;
	child.last_call = &c->next;
	pthread_mutex_unlock(&child.calling);
	eventfd_write(child.called, 1);
}

static void make_calls(void)
{
	eventfd_t n;
	struct call *c;

	eventfd_read(child.called, &n);
	pthread_mutex_lock(&child.calling);
	c = child.call;
	child.call = NULL;
	child.last_call = &child.call;
	pthread_mutex_unlock(&child.calling);
	for (struct call *next; c; c = next) {
		next = c->next;
		c->done(PX_SUCCESS, c->ctx);
		free(c);
	}
}

/* ---- pmix_open ---- */

static bool take_functions(void)
{
#define FUNCTION(result, name, arguments)                                              \
	px.name = (result(*) arguments)dlsym(px.library, "PMIx_" #name);               \
	if (!px.name)                                                                  \
		return false;
	PX_SERVER_FUNCTIONS(FUNCTION)
#undef FUNCTION
	return true;
}

/* The first of LIBRARIES that is one.  NULL: WHY not. */
static const char *load(wire_strv libraries, struct str *why)
{
	for (size_t i = 0; i < libraries.n; i++) {
		px.library = dlopen(libraries.v[i], RTLD_NOW | RTLD_GLOBAL);
		if (px.library && take_functions())
			return libraries.v[i];
		str_addf(why, "%s%s", why->len ? "; " : "",
			 px.library ? "it lacks functions of a server" : dlerror());
		if (px.library)
			dlclose(px.library);
	}
	return NULL;
}

/* Nothing that was meant for another server, or for ranks. */
static void clean_environment(void)
{
	static const char *const prefixes[] = { "PMIX_", "PMI_", "OMPI_", "PRTE_",
						"HWLOC_" };

	for (size_t i = 0; environ[i];) {
		bool drop = false;

		for (size_t k = 0; k < sizeof prefixes / sizeof *prefixes; k++)
			drop |= !strncmp(environ[i], prefixes[k], strlen(prefixes[k]));
		if (drop) {
			char *name = xstrndup(environ[i], strcspn(environ[i], "="));

			unsetenv(name);
			free(name);
		} else {
			i++;
		}
	}
}

/* The server takes the machine from a file: 2 ms, where a look of its own is 10. */
static void use_topology(const char *xml)
{
	char *path = xasprintf("%s/topology.xml", px.folder);
	FILE *f = fopen(path, "we");

	if (f && fputs(xml, f) >= 0 && !fclose(f)) {
		setenv("HWLOC_XMLFILE", path, 1);
		setenv("HWLOC_THISSYSTEM", "1", 1);
	}
	free(path);
}

/* libpmix 4.2 and later keep what ranks put in a shared file, by default; a rank that
 * is killed at the wrong moment leaves that locked.  From this size on, a copy in each
 * rank is too much memory. */
enum { HASH_BELOW = 4096 };

static int become_server(const struct wire_pmix_open *m)
{
	struct px_list l = { 0 };
	char *name = xasprintf("berth-server-%d", (int)getpid());
	int status;

	clean_environment();
	/* The host sees that ranks come to a fence: so it knows who waits. */
	setenv("PMIX_MCA_pmix_server_fence_localonly_opt", "0", 1);
	if (*m->topology)
		use_topology(m->topology);
	px_text(&l, PX_SERVER_TMPDIR, px.folder);
	px_text(&l, PX_SYSTEM_TMPDIR, px.folder);
	px_text(&l, PX_SERVER_NSPACE, name);
	px_rank(&l, PX_SERVER_RANK, m->node);
	px_text(&l, PX_HOSTNAME, m->host);
	if (!*m->topology)
		px_flag(&l, PX_SHARE_TOPOLOGY, true);
	if (m->np < HASH_BELOW)
		setenv("PMIX_MCA_gds", "hash", 1);
	pmix_accept_guard();
	status = px.server_init(&upcalls, l.v, l.n);
	px_list_free(&l);
	free(name);
	return status;
}

static void on_open(const struct wire_pmix_open *m)
{
	struct wire_pmix_opened answer = { .library = "", .version = "", .error = "" };
	struct str why = { 0 };
	struct buf frame = { 0 };
	const char *library = load(m->libraries, &why);
	int status;

	if (library) {
		px.folder = xstrdup(m->folder);
		snprintf(px.folders.files, sizeof px.folders.files, "%s", m->folder);
		snprintf(px.folders.memory, sizeof px.folders.memory, "%s", m->memory);
		snprintf(px.nspace, sizeof px.nspace, "%s", m->nspace);
		status = become_server(m);
		answer.library = library;
		answer.version = px.Get_version();
		if (status != PX_SUCCESS)
			str_addf(&why, "PMIx_server_init: %s", px.Error_string(status));
		else
			str_free(&why);
	} else if (!why.len) {
		str_add(&why, "no libpmix.so.2");
	}
	answer.error = str_text(&why);
	wire_pack_pmix_opened(&frame, &answer);
	child_say(&frame);
	str_free(&why);
}

/* ---- messages ---- */

/* False: it is not one of the host's. */
static bool take(const struct wire_frame *f, struct err *e)
{
	switch (f->type) {
#define TAKE(name, call)                                                               \
	case WIRE_##name: {                                                            \
		struct wire_##name m;                                                  \
                                                                                       \
		if (wire_unpack_##name(&m, f->payload, f->n, e))                       \
			return false;                                                  \
		call;                                                                  \
		wire_free_##name(&m);                                                  \
		return true;                                                           \
	}
		TAKE(pmix_open, on_open(&m))
		TAKE(pmix_job, job_register(&m))
		TAKE(pmix_collected, upcall_collected(&m))
		TAKE(pmix_got, upcall_got(&m))
		TAKE(pmix_serve, upcall_serve(&m))
		TAKE(pmix_found, upcall_found(&m))
		TAKE(pmix_notify, upcall_notify(&m))
#undef TAKE
	default:
		return false;
	}
}

/* False: the host is gone, or says what it never says. */
static bool hear(void)
{
	enum { READ_BYTES = 65536 };
	ssize_t got = read(child.fd, buf_reserve(&child.in, READ_BYTES), READ_BYTES);
	struct wire_frame f;
	struct err e = { 0 };
	long n = 0;

	if (got <= 0)
		return got < 0 && errno == EINTR;
	child.in.len += (size_t)got;
	while ((n = wire_next_from(WIRE_PMIX_HOST, &f, buf_head(&child.in),
				   child.in.len, &e)) > 0) {
		if (!take(&f, &e))
			return false;
		buf_drop(&child.in, (size_t)n);
	}
	return !n;
}

int pmix_child_main(int fd)
{
	struct pollfd from[] = { { .fd = fd, .events = POLLIN }, { .events = POLLIN } };

	signal(SIGALRM, on_alarm);
	prctl(PR_SET_PDEATHSIG, (unsigned long)SIGALRM, 0L, 0L, 0L);
	prctl(PR_SET_NAME, "berth-pmix");
	child.fd = fd;
	child.called = from[1].fd = eventfd(0, EFD_CLOEXEC);
	for (;;) {
		if (poll(from, 2, -1) < 0 && errno != EINTR)
			return 1;
		if (from[1].revents)
			make_calls();
		if (from[0].revents && !hear())
			leave();
	}
}
