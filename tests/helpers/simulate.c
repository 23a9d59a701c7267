/* simulate: what many hosts cost the launcher, without many hosts.
 *
 *   simulate [-k WORKERS] [-p PAUSE_US] [-r RANKS] [-f RANK] [-t] HOSTS
 *
 * This process is runner from its options to its exit status (run() is main.c's), but
 * for the transport: socketpairs to a few WORKERS (2), each of which is the agent of
 * many hosts and says what real ones say, berths, endings and all; ranks are not
 * started.  Each of HOSTS has RANKS (1).  They start, the first rank of each host
 * writes 1 KiB in 16 lines, all get one SIGUSR1, then all end with 0; with -f, RANK
 * ends with 3 and the others by SIGTERM.  With -p a worker pauses after each host it
 * answers for, so that the launcher hears of one at a time, as it does of real hosts.
 *
 * stdout: what the ranks wrote, as runner shows it; last on stderr, with -t, a row for
 * each step: wall time, and of the launcher alone CPU time, memory (resident, and at
 * most), descriptors.  Exit status: runner's.
 *
 * Hosts are addresses of 198.18.0.0/15, which RFC 2544 sets apart for benchmarks, so
 * that no name is looked up. */
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/wire.h"
#include "launcher/cli/options.h"
#include "launcher/job/job.h"
#include "launcher/hosts/select.h"

enum { OUTPUT_BYTES = 1024, LINE_BYTES = 64, BLOCK = 250, WORKERS_MAX = 64 };

extern char **environ;

static size_t nhosts, nworkers = 2, per_host = 1;
static long failing = -1, pause_us;
static bool wants_table;
static int *sock;              /* the launcher's ends, by host */
static int order[WORKERS_MAX]; /* pipes: say 'h'ello, write 'o'utput, 'e'nd */
static int all_signalled;      /* eventfd */
static _Atomic size_t *signalled;

/* ---- an agent ---- */

struct agent {
	int fd;
	uint32_t epoch, n, running;
	uint32_t *rank;
	struct buf in, out;
	struct event *readable;
};

struct worker {
	struct event_base *base;
	struct agent *agent;
	size_t n, left;
};

/* May wait: the launcher, which never waits to send, reads on. */
static void agent_send(struct agent *a)
{
	while (a->out.len) {
		ssize_t n = send(a->fd, buf_head(&a->out), a->out.len, MSG_NOSIGNAL);

		buf_drop(&a->out, n > 0 ? (size_t)n : a->out.len);
	}
}

static void say_hello(struct agent *a)
{
	struct wire_hello m = { .version = BERTH_VERSION,
				.wire = WIRE_VERSION,
				.cpus = 128,
				.cores = 64,
				.address = "198.18.0.1",
				.port = 20000 };

	buf_add(&a->out, WIRE_MAGIC, WIRE_MAGIC_BYTES);
	wire_pack_hello(&a->out, &m);
}

static void say_berth(struct agent *a, uint32_t rank)
{
	struct wire_berth m = { .epoch = a->epoch,
				.rank = rank,
				.gpu = "",
				.gpu_name = "",
				.cpus = "0-7,64-71",
				.numa = "0",
				.visible = "",
				.why = "cores" };

	wire_pack_berth(&a->out, &m);
}

static void on_job(struct agent *a, const struct wire_frame *f)
{
	struct wire_placed placed = { .idle = "", .certificate = "none" };
	struct wire_job m;

	if (wire_unpack_job(&m, f->payload, f->n, NULL))
		_exit(1);
	a->epoch = placed.epoch = m.epoch;
	a->n = (uint32_t)m.ranks.n;
	a->rank = xcalloc(a->n, sizeof *a->rank);
	for (uint32_t i = 0; i < a->n; i++)
		say_berth(a, a->rank[i] = m.ranks.v[i]);
	wire_pack_placed(&a->out, &placed);
	wire_free_job(&m);
}

static void on_start(struct agent *a)
{
	for (uint32_t i = 0; i < a->n; i++) {
		struct wire_started m = { a->epoch, a->rank[i], 1000 + i, "0-7,64-71" };

		wire_pack_started(&a->out, &m);
	}
	a->running = a->n;
}

static void end_rank(struct agent *a, uint32_t local, int status)
{
	struct wire_exited m = { .epoch = a->epoch,
				 .rank = a->rank[local],
				 .pid = 1000 + local,
				 .status = (uint32_t)status,
				 .began_ns = clock_ns(),
				 .text = "",
				 .hint = "" };

	wire_pack_exited(&a->out, &m);
	a->running--;
}

/* The ranks end by TERM; all but one that ended by itself. */
static void on_end(struct agent *a)
{
	uint32_t alive = a->running;

	wire_pack_stop_ack(&a->out, &(struct wire_stop_ack){ a->epoch });
	for (uint32_t i = 0; alive && i < a->n; i++)
		if (a->rank[i] != failing)
			end_rank(a, i, SIGTERM);
	wire_pack_cleared(&a->out,
			  &(struct wire_cleared){ .epoch = a->epoch, .which = "" });
}

static void on_heartbeat(struct agent *a, const struct wire_frame *f)
{
	struct wire_heartbeat m;

	if (wire_unpack_heartbeat(&m, f->payload, f->n, NULL))
		_exit(1);
	m = (struct wire_heartbeat){ clock_ns(), m.clock_ns };
	wire_pack_heartbeat(&a->out, &m);
}

static void on_signalled(void)
{
	const uint64_t one = 1;

	if (atomic_fetch_add(signalled, 1) + 1 == nhosts &&
	    write(all_signalled, &one, sizeof one) < 0)
		_exit(1);
}

static void pause_between(void)
{
	if (pause_us)
		nanosleep(&(struct timespec){ .tv_nsec = pause_us * 1000 }, NULL);
}

static void agent_leave(struct worker *w, struct agent *a)
{
	event_free(a->readable);
	close(a->fd);
	if (--w->left == 0)
		event_base_loopbreak(w->base);
}

static struct worker *self;

static void on_agent_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct agent *a = ctx;
	ssize_t n = read(fd, buf_reserve(&a->in, 65536), 65536);
	struct wire_frame f = { .type = WIRE_shutdown };
	long used;

	(void)what;
	a->in.len += n > 0 ? (size_t)n : 0;
	while (n > 0 && (used = wire_next_from(WIRE_LAUNCHER, &f, buf_head(&a->in),
					       a->in.len, NULL)) > 0) {
		switch (f.type) {
		case WIRE_job:
			on_job(a, &f);
			break;
		case WIRE_start:
			on_start(a);
			break;
		case WIRE_heartbeat:
			on_heartbeat(a, &f);
			break;
		case WIRE_signal:
			on_signalled();
			break;
		case WIRE_stop:
			on_end(a);
			break;
		default:
			break;
		}
		buf_drop(&a->in, (size_t)used);
		if (f.type == WIRE_shutdown)
			n = 0;
	}
	agent_send(a);
	if (n <= 0)
		agent_leave(self, a);
	pause_between();
}

static void write_lines(struct agent *a)
{
	char text[OUTPUT_BYTES];
	struct wire_output m = { a->epoch, a->rank[0], 1, { text, sizeof text } };

	memset(text, 'x', sizeof text);
	for (size_t i = LINE_BYTES - 1; i < sizeof text; i += LINE_BYTES)
		text[i] = '\n';
	wire_pack_output(&a->out, &m);
}

static void end_ranks(struct agent *a)
{
	for (uint32_t i = 0; i < a->n; i++)
		if (failing < 0)
			end_rank(a, i, 0);
		else if (a->rank[i] == failing)
			end_rank(a, i, 3 << 8);
}

static void on_order(evutil_socket_t fd, short what, void *ctx)
{
	struct worker *w = ctx;
	char c;

	(void)what;
	if (read(fd, &c, 1) != 1)
		_exit(1); /* the launcher is gone */
	for (size_t i = 0; i < w->n; i++) {
		(c == 'h'   ? say_hello
		 : c == 'o' ? write_lines
			    : end_ranks)(&w->agent[i]);
		agent_send(&w->agent[i]);
		pause_between();
	}
}

static void __attribute__((noreturn)) work(int orders, const int *fd, size_t n)
{
	struct worker w = { event_base_new(), xcalloc(n, sizeof *w.agent), n, n };
	struct event *order_event =
		event_new(w.base, orders, EV_READ | EV_PERSIST, on_order, &w);

	prctl(PR_SET_PDEATHSIG, (long)SIGKILL, 0L, 0L, 0L);
	self = &w;
	event_add(order_event, NULL);
	for (size_t i = 0; i < n; i++) {
		struct agent *a = &w.agent[i];

		a->fd = fd[i];
		a->readable = event_new(w.base, a->fd, EV_READ | EV_PERSIST,
					on_agent_readable, a);
		event_add(a->readable, NULL);
	}
	event_base_dispatch(w.base);
	_exit(0);
}

/* Worker K is the agent of hosts FIRST to END. */
static void fork_worker(size_t k, size_t first, size_t end)
{
	int *theirs = xcalloc(end - first, sizeof *theirs), s[2], p[2];

	for (size_t i = first; i < end; i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s)) {
			perror("simulate: socketpair");
			exit(1);
		}
		sock[i] = s[0];
		theirs[i - first] = s[1];
	}
	if (pipe2(p, O_CLOEXEC))
		exit(1);
	if (fork() == 0) {
		for (size_t i = 0; i < end; i++)
			close(sock[i]);
		for (size_t i = 0; i < k; i++)
			close(order[i]);
		close(p[1]);
		work(p[0], theirs, end - first);
	}
	for (size_t i = 0; i < end - first; i++)
		close(theirs[i]);
	free(theirs);
	close(p[0]);
	order[k] = p[1];
}

static void order_all(char c)
{
	for (size_t k = 0; k < nworkers; k++)
		if (write(order[k], &c, 1) != 1)
			exit(1);
}

/* ---- the transport ---- */

struct conn {
	const struct transport_events *events;
	void *ctx;
	int fd;
	struct event *readable, *writable;
};

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
	static char room[65536];
	struct conn *c = ctx;
	ssize_t n = recv(fd, room, sizeof room, MSG_DONTWAIT);
	struct transport_end end = { .status = 0, .said = "" };

	(void)what;
	if (n > 0)
		c->events->bytes(c->ctx, room, (size_t)n);
	else if (n == 0 || errno == ECONNRESET)
		c->events->ended(c->ctx, &end);
}

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *c = ctx;

	(void)fd;
	(void)what;
	c->events->writable(c->ctx);
}

static struct conn *sim_start(const struct transport_setup *setup,
			      const struct target *t,
			      const struct transport_events *events, void *ctx)
{
	struct conn *c = xcalloc(1, sizeof *c);
	const struct host *h = ctx;

	(void)t;
	*c = (struct conn){ events, ctx, sock[h - h->agents->host], NULL, NULL };
	c->readable =
		event_new(setup->base, c->fd, EV_READ | EV_PERSIST, on_readable, c);
	c->writable = event_new(setup->base, c->fd, EV_WRITE, on_writable, c);
	event_add(c->readable, NULL);
	if (h == &h->agents->host[nhosts - 1])
		order_all('h');
	return c;
}

static size_t sim_send(struct conn *c, const void *data, size_t n)
{
	ssize_t sent = send(c->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (sent < (ssize_t)n)
		event_add(c->writable, NULL);
	return sent < 0 ? 0 : (size_t)sent;
}

static void sim_close(struct conn *c)
{
	event_free(c->readable);
	event_free(c->writable);
	close(c->fd);
	free(c);
}

static const struct transport transport_sim = { "sim", sim_start, sim_send, sim_close,
						NULL };

/* ---- steps and their cost ---- */

struct cost {
	const char *step;
	uint64_t wall_ns, cpu_ns;
	long resident_kib, most_kib, fds;
};

static struct cost costs[16];
static size_t ncosts;
static uint64_t begin_wall_ns, begin_cpu_ns;

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static long count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	long n = -3; /* ".", "..", and D itself */

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static long status_kib(const char *field)
{
	FILE *f = fopen("/proc/self/status", "re");
	size_t len = strlen(field);
	char line[256];
	long kib = 0;

	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, field, len))
			kib = strtol(line + len + 1, NULL, 10);
	if (f)
		fclose(f);
	return kib;
}

static void step_begin(void)
{
	begin_wall_ns = clock_ns();
	begin_cpu_ns = cpu_ns();
}

/* STEP ends here, and the next one begins. */
static void step_end(const char *step)
{
	struct cost *c = &costs[ncosts++];

	*c = (struct cost){ .step = step,
			    .wall_ns = clock_ns() - begin_wall_ns,
			    .cpu_ns = cpu_ns() - begin_cpu_ns };
	if (!wants_table)
		return;
	c->resident_kib = status_kib("VmRSS");
	c->most_kib = status_kib("VmHWM");
	c->fds = count_fds();
	step_begin();
}

static void print_table(void)
{
	fprintf(stderr, "%5s %-9s %9s %9s %9s %9s %9s %6s\n", "hosts", "step",
		"wall ms", "CPU ms", "us/host", "RSS KiB", "most KiB", "fds");
	for (size_t i = 0; i < ncosts; i++) {
		const struct cost *c = &costs[i];

		fprintf(stderr, "%5zu %-9s %9.1f %9.1f %9.1f %9ld %9ld %6ld\n", nhosts,
			c->step, (double)c->wall_ns / 1e6, (double)c->cpu_ns / 1e6,
			(double)c->cpu_ns / 1e3 / (double)nhosts, c->resident_kib,
			c->most_kib, c->fds);
	}
}

/* ---- the launcher ---- */

static struct agents_events job_events, counting;
static size_t started, written;

static void signal_ranks(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	(void)ctx;
	step_end("output");
	raise(SIGUSR1);
}

/* After what the job has queued meanwhile for this turn: its write to stdout. */
static void signal_soon(struct job *j)
{
	event_base_once(j->base, -1, EV_TIMEOUT, signal_ranks, NULL,
			&(struct timeval){ 0 });
}

static void on_all_signalled(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	(void)ctx;
	step_end("signal");
	order_all('e');
}

static void on_frame(void *ctx, struct host *h, const struct wire_frame *f)
{
	struct job *j = ctx;

	job_events.frame(j, h, f);
	if (f->type == WIRE_started && ++started == j->plan.np) {
		step_end("started");
		order_all('o');
	}
	if (f->type == WIRE_output && ++written == nhosts)
		signal_soon(j);
}

static void take_over(struct job *j)
{
	for (size_t i = 0; i < j->agents.n; i++)
		j->agents.host[i].transport = &transport_sim;
	job_events = counting = *j->agents.events;
	counting.frame = on_frame;
	j->agents.events = &counting;
	event_base_once(j->base, all_signalled, EV_READ, on_all_signalled, NULL, NULL);
}

static int run(const struct request *r)
{
	struct strv notes = { 0 };
	struct selection hosts = { 0 };
	struct err e = { 0 };
	struct job j;
	int status;

	step_begin();
	job_open(&j, r, &hosts, hosts_select(&hosts, r, &notes, &e) ? &e : NULL);
	strv_free(&notes);
	step_end("hosts");
	take_over(&j);
	job_begin(&j);
	job_until(&j, JOB_PLACE);
	step_end("hello");
	job_until(&j, JOB_RUN);
	step_end("placed");
	job_until(&j, JOB_CLOSE);
	step_end("ended");
	job_until(&j, JOB_DONE);
	status = job_finish(&j);
	step_end("left");
	job_free(&j);
	step_end("freed");
	return status;
}

/* ---- the command line ---- */

static char *host_list(void)
{
	struct str s = { 0 };

	for (size_t block = 0; block * BLOCK < nhosts; block++) {
		size_t left = nhosts - block * BLOCK;

		str_addf(&s, "%s198.18.%zu.[1-%zu]:%zu", block ? "," : "", block,
			 left < BLOCK ? left : (size_t)BLOCK, per_host);
	}
	return str_take(&s);
}

static int launch(void)
{
	char *hosts = host_list();
	const char *argv[] = { "runner",  "-H",   hosts,  "--transport", "ssh",
			       "--stdin", "none", "true", NULL };
	struct request request;
	struct strv notes = { 0 };
	struct str print = { 0 };
	struct err e = { 0 };
	int status;

	if (options_read(&request, &notes, &print, OPTIONS_SITE_FILE,
			 sizeof argv / sizeof *argv - 1, (char **)argv, environ,
			 &e) != OPTIONS_RUN) {
		err_print("simulate", &e);
		return EXIT_USAGE;
	}
	status = run(&request);
	if (wants_table)
		print_table();
	options_free(&request);
	strv_free(&notes);
	str_free(&print);
	free(hosts);
	return status;
}

static long number(const char *text)
{
	long n = -1;

	if (str_to_long(&n, text, 0, 60000, NULL)) {
		fprintf(stderr, "simulate: '%s' is no number\n", text);
		exit(EXIT_USAGE);
	}
	return n;
}

static void read_options(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "k:p:r:f:t")) != -1)
		switch (c) {
		case 'k':
			nworkers = (size_t)number(optarg);
			break;
		case 'p':
			pause_us = number(optarg);
			break;
		case 'r':
			per_host = (size_t)number(optarg);
			break;
		case 'f':
			failing = number(optarg);
			break;
		case 't':
			wants_table = true;
			break;
		default:
			exit(EXIT_USAGE);
		}
	nhosts = optind == argc - 1 ? (size_t)number(argv[optind]) : 0;
	if (!nhosts || !nworkers || nworkers > WORKERS_MAX || !per_host)
		exit(EXIT_USAGE);
}

int main(int argc, char **argv)
{
	struct rlimit l;
	int status;

	read_options(argc, argv);
	getrlimit(RLIMIT_NOFILE, &l);
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
	sock = xcalloc(nhosts, sizeof *sock);
	all_signalled = eventfd(0, EFD_CLOEXEC);
	signalled = mmap(NULL, sizeof *signalled, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (size_t k = 0; k < nworkers; k++)
		fork_worker(k, nhosts * k / nworkers, nhosts * (k + 1) / nworkers);
	status = launch();
	free(sock);
	return status; /* and the workers end with this process */
}
