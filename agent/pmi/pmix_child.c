#include "agent/pmi/pmix_child_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/pmi/pmix_accept.h"

extern char **environ;

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
static const char *child_load(wire_strv libraries, struct str *why)
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

/* The server takes the machine from a file in memory, without hwloc's plugins, which
 * are not in its folder: PMIx_server_init() takes 2 ms, and 14 to 25 with a look of its
 * own. */
static void use_topology(const char *xml)
{
	const int fd = memfd_create("topology", MFD_CLOEXEC);
	char path[32];

	if (fd < 0 || write(fd, xml, strlen(xml)) != (ssize_t)strlen(xml))
		return;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	setenv("HWLOC_XMLFILE", path, 1);
	setenv("HWLOC_THISSYSTEM", "1", 1);
	setenv("HWLOC_PLUGINS_PATH", px.folder, 1);
}

static int become_server(const struct wire_pmix_open *m)
{
	struct px_list l = { 0 };
	char *name = xasprintf("berth-server-%d", (int)getpid());
	int status;

	clean_environment();
	/* The host sees that ranks come to a fence: so it knows who waits. */
	setenv("PMIX_MCA_pmix_server_fence_localonly_opt", "0", 1);
	px.expected = !*m->topology;
	if (!px.expected)
		use_topology(m->topology);
	px_text(&l, PX_SERVER_TMPDIR, px.folder);
	px_text(&l, PX_SYSTEM_TMPDIR, px.folder);
	px_text(&l, PX_SERVER_NSPACE, name);
	px_rank(&l, PX_SERVER_RANK, m->node);
	px_text(&l, PX_HOSTNAME, m->host);
	if (px.expected)
		px_flag(&l, PX_SHARE_TOPOLOGY, true);
	/* By default it is in a shared file, which a rank that is killed at the wrong
	 * moment leaves locked. */
	if (m->np < PMIX_LARGE_JOB)
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
	const char *library = child_load(m->libraries, &why);
	int status;

	if (library) {
		px.folder = xstrdup(m->folder);
		snprintf(px.folders.files, sizeof px.folders.files, "%s", m->folder);
		snprintf(px.folders.memory, sizeof px.folders.memory, "%s", m->memory);
		pmix_folders_know(&px.folders);
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
	CHILD_SAY(pmix_opened, &answer);
	str_free(&why);
}

/* ---- messages ---- */

/* 0, or -1: it is not one of the host's. */
static int child_take(const struct wire_frame *f, struct err *e)
{
	switch (f->type) {
		WIRE_TAKE(pmix_open, on_open(&m))
		WIRE_TAKE(pmix_job, job_register(&m))
		WIRE_TAKE(pmix_collected, upcall_collected(&m))
		WIRE_TAKE(modex_data, upcall_got(&m))
		WIRE_TAKE(modex_request, upcall_serve(&m))
		WIRE_TAKE(found, upcall_found(&m))
		WIRE_TAKE(event, upcall_notify(&m))
	default:
		return -1;
	}
	return 0;
}

/* False: the host is gone, or says what it never says. */
static bool child_hear(int fd)
{
	enum { READ_BYTES = 65536 };
	static struct buf in;
	ssize_t got = read(fd, buf_reserve(&in, READ_BYTES), READ_BYTES);
	struct wire_frame f;
	struct err e = { 0 };
	long n = 0;

	if (got <= 0)
		return got < 0 && errno == EINTR;
	in.len += (size_t)got;
	while ((n = wire_next_from(WIRE_PMIX_HOST, &f, buf_head(&in), in.len, &e)) >
	       0) {
		if (child_take(&f, &e))
			return false;
		buf_drop(&in, (size_t)n);
	}
	return !n;
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

int pmix_child_main(int fd)
{
	struct pollfd from[] = { { .fd = fd, .events = POLLIN }, { .events = POLLIN } };

	signal(SIGALRM, on_alarm);
	prctl(PR_SET_PDEATHSIG, (unsigned long)SIGALRM, 0L, 0L, 0L);
	prctl(PR_SET_NAME, "berth-pmix");
	from[1].fd = child_link(fd);
	for (;;) {
		if (poll(from, 2, -1) < 0 && errno != EINTR)
			return 1;
		if (from[1].revents)
			child_make_calls();
		if (from[0].revents && !child_hear(fd))
			child_leave();
	}
}
