/* elastic STEPS [MS] [all] [times] [mb=MIB] [dies=MS] [RANK@STEP]...: a training in f64
 * with sums, whose ranks come and go.
 *
 * STEPS      how many; or a file: the training ends once it is there
 * MS         a step takes so long, or a little more (0)
 * all        after STEPS it goes on until all ranks of the job are in its world
 * times      each death, and each first step in a world, is printed with its time
 * mb=MIB     each rank that kills itself has so much memory, in small pages
 * dies=MS    each life ends at random, after MS on average, until the file STEPS is
 *            there; a first life not before its first step, since the others do not go
 *            on without a rank before they have said so
 * saves=N    rank 0 of the job saves in one step of N, at random, for 10 steps
 * RANK@STEP  RANK of the job kills itself in its first life before the operation of
 *            STEP, or hangs there: RANK@STEPs stopped by SIGSTOP, RANK@STEPl on a
 *            lock of its own, RANK@STEPr in an endless loop, RANK@STEPv in vfork(2),
 *            in state D, RANK@STEPd reading from the file ELASTIC_READS;
 *            RANK@STEP+ in it, RANK@STEPc in the berth_change() after it,
 *            RANK@0i before the berth_init() of its second life;
 *            RANK@STEPz before it, too, and it stays a zombie for ZOMBIE_MS;
 *            RANK@STEPf is no death: a child dies, and a thread ends;
 *            RANK@STEPe neither: another program takes its place, and fails later
 *
 * After its first step rank 0 prints `all have begun`, at the end rank 0 of the world
 * prints `N ranks, STEPS steps`; ranks that start again print `rank R came at step S`.
 *
 * The batches of a step are split among the ranks, so that the sum of all gradients
 * does not depend on how many there are: each rank compares the state with that of the
 * undisturbed training, which it computes alone. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/berth.h"
#include "tests/helpers/calls.h"

enum { WIDTH = 16, BATCHES = 24, DEATHS_MOST = 16, STOP = 4, ZOMBIE_MS = 2000 };

struct state {
	double step, x[WIDTH];
};

static struct state now, saved;
static int me, life, n;     /* rank of the job, its life; deaths */
static const char *until;   /* a file; or NULL */
static bool times, stopped; /* all ranks of this world know of it */
static int steps, mean_ms, mib, saves;
static int ranks; /* that have to be there at its end */
static struct death {
	int rank, step;
	char when;
} death[DEATHS_MOST];

#define CHECK(fine, what, is) CALL_CHECK(me, fine, what, is)

/* ---- the training ---- */

static void begin(struct state *s)
{
	s->step = 0;
	for (int i = 0; i < WIDTH; i++)
		s->x[i] = 1.0 / (i + 1);
}

/* Adds what one batch of the step gives to GRADIENT. */
static void add_batch(const struct state *s, int batch, double *gradient)
{
	const double of = s->step * BATCHES + batch;

	for (int i = 0; i < WIDTH; i++)
		gradient[i] += sin(of * (i + 1)) - s->x[i] * cos(of) / 10;
}

static void move(struct state *s, const double *gradient)
{
	for (int i = 0; i < WIDTH; i++)
		s->x[i] += gradient[i] / BATCHES;
	s->step++;
}

static double error_at_end(void)
{
	struct state s;
	double worst = 0;

	begin(&s);
	while (s.step < now.step) {
		double gradient[WIDTH] = { 0 };

		for (int b = 0; b < BATCHES; b++)
			add_batch(&s, b, gradient);
		move(&s, gradient);
	}
	for (int i = 0; i < WIDTH; i++)
		worst = fmax(worst, fabs(s.x[i] - now.x[i]));
	return worst;
}

/* ---- deaths ---- */

static void say_time(const char *what)
{
	struct timespec t;

	if (!times)
		return;
	clock_gettime(CLOCK_MONOTONIC, &t);
	printf("%.3f ms: rank %d %s, of %d\n",
	       (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6, me, what,
	       call_world().ranks);
}

static void die(void)
{
	say_time("dies");
	kill(getpid(), SIGKILL);
}

static bool dies(char when)
{
	for (int i = 0; i < n; i++)
		if (death[i].rank == me && death[i].when == when &&
		    (when == 'i' ? life == 2
				 : life == 1 && death[i].step == (int)now.step))
			return true;
	return false;
}

/* In small pages. */
static void take_memory(void)
{
	const size_t bytes = (size_t)mib << 20, page = 4096;
	bool is_to_die = false;
	char *p;

	for (int i = 0; i < n; i++)
		is_to_die |= death[i].rank == me;
	if (!bytes || !is_to_die || life > 1)
		return;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		 0);
	CHECK(p != MAP_FAILED && !madvise(p, bytes, MADV_NOHUGEPAGE), "MiB of memory",
	      mib);
	for (size_t i = 0; i < bytes; i += page)
		p[i] = 1;
}

static void hang_on_a_lock(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&lock);
	pthread_mutex_lock(&lock);
}

static void hang_in_a_loop(void)
{
	static volatile unsigned turns;

	for (;;)
		turns++;
}

static void hang_in_the_kernel(void)
{
	if (!vfork())
		for (;;)
			pause();
}

/* From a file system of FUSE whose server is stopped. */
static void hang_in_a_read(void)
{
	const char *path = getenv("ELASTIC_READS");
	const int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char c;

	CHECK(file >= 0 && read(file, &c, 1) >= 0, "ELASTIC_READS", file);
}

static void hang(void)
{
	static const struct {
		char when;
		void (*how)(void);
	} ways[] = { { 'l', hang_on_a_lock },
		     { 'r', hang_in_a_loop },
		     { 'v', hang_in_the_kernel },
		     { 'd', hang_in_a_read } };

	if (dies('s'))
		kill(getpid(), SIGSTOP);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (dies(ways[i].when))
			ways[i].how();
}

/* Work of 10 steps, as it writes what it has computed. */
static void save(int ms)
{
	static char bytes[1 << 16];
	const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	for (int i = 0; i < 10 * ms; i++) {
		CHECK(write(null, bytes, sizeof bytes) > 0, "write", 0);
		usleep(1000);
	}
	close(null);
}

/* Another rank dies in the operation of this step: this one comes to it later. */
static bool is_left_alone(void)
{
	for (int i = 0; i < n; i++)
		if (death[i].rank != me && death[i].when == '+' &&
		    death[i].step == (int)now.step)
			return true;
	return false;
}

static void *die_soon(void *us)
{
	usleep(*(useconds_t *)us);
	die();
	return NULL;
}

/* While the call that follows lasts. */
static void die_in_it(void)
{
	static useconds_t us = 300;
	pthread_t thread;

	pthread_create(&thread, NULL, die_soon, &us);
}

/* The kernel lets nobody reap a process before who traces it has done so. */
static void die_and_stay(void)
{
	const pid_t me_now = getpid();
	int ready[2], status;
	pid_t child;
	char c;

	CHECK(!pipe(ready), "pipe", 0);
	child = fork();
	if (!child) {
		close(ready[1]);
		if (read(ready[0], &c, 1) != 1 ||
		    ptrace(PTRACE_SEIZE, me_now, NULL, NULL))
			_exit(1);
		kill(me_now, SIGKILL);
		usleep(ZOMBIE_MS * 1000);
		_exit(0);
	}
	prctl(PR_SET_PTRACER, child);
	say_time("dies");
	CHECK(write(ready[1], "x", 1) == 1, "write", 0);
	waitpid(child, &status, 0);
	CHECK(false, "ptrace", status);
}

static void *end_soon(void *unused)
{
	return unused;
}

static void lose_a_child_and_a_thread(void)
{
	pthread_t thread;
	pid_t child = fork();
	int status;

	if (!child)
		raise(SIGKILL);
	CHECK(waitpid(child, &status, 0) == child, "waitpid", status);
	CHECK(!pthread_create(&thread, NULL, end_soon, NULL), "thread", 0);
	pthread_join(thread, NULL);
}

/* Anywhere: in berth_init() as well as in operations and changes. */
static void *die_at_random(void *unused)
{
	struct timespec t;

	(void)unused;
	clock_gettime(CLOCK_REALTIME, &t);
	srand48(t.tv_nsec ^ getpid());
	usleep((useconds_t)(-log(1 - drand48()) * mean_ms * 1000));
	if (!until || access(until, F_OK))
		die();
	return NULL;
}

static void begin_to_die(void)
{
	static bool begun;
	pthread_t thread;

	if (!begun && me == 0 && life == 1)
		printf("all have begun\n");
	if (mean_ms && !begun)
		pthread_create(&thread, NULL, die_at_random, NULL);
	begun = true;
}

/* ---- with the others ---- */

static berth_result all(double *x, uint64_t count, berth_op op)
{
	return call_allreduce(
		&(struct berth_desc)BERTH_DESC(.in = x, .out = x, .count = count,
					       .type = BERTH_F64, .op = op));
}

static berth_result step(int ms)
{
	const struct berth_world w = call_world();
	double gradient[WIDTH] = { 0 };
	berth_result rc;

	if (dies(' '))
		die();
	if (dies('z'))
		die_and_stay();
	if (dies('f'))
		lose_a_child_and_a_thread();
	if (dies('e')) {
		say_time("execs");
		execl("/bin/sh", "sh", "-c", "sleep 0.5; exit 9", (char *)NULL);
	}
	hang();
	if (saves && me == 0 && random() % saves == 0)
		save(ms);
	if (ms)
		usleep((useconds_t)ms * 1000);
	for (int b = w.rank; b < BATCHES; b += w.ranks)
		add_batch(&now, b, gradient);
	if (dies('+'))
		die_in_it();
	else if (is_left_alone())
		usleep(5000);
	rc = all(gradient, WIDTH, BERTH_SUM);
	if (!rc)
		move(&now, gradient);
	return rc;
}

/* The state is good.  *CHANGED: all agree that the world changes now; or that this was
 * the last step. */
static berth_result commit(bool *changed)
{
	double x = call_world().changed;
	berth_result rc;

	if (until && !access(until, F_OK))
		x += STOP;
	saved = now;
	rc = all(&x, 1, BERTH_MAX);
	stopped = !rc && x >= STOP;
	*changed = !rc && (int)x % STOP;
	return rc;
}

/* All take over what rank 0 of the world has. */
static berth_result sync_state(void)
{
	const struct berth_world w = call_world();
	const double had = now.step;
	berth_result rc;

	if (w.rank)
		now = (struct state){ 0 };
	rc = all(&now.step, 1 + WIDTH, BERTH_SUM);
	if (rc)
		return rc;
	CHECK(now.step >= had, "a step that was lost", now.step);
	saved = now;
	return BERTH_OK;
}

static void next_world(void)
{
	berth_result rc;

	now = saved;
	stopped = false;
	if (dies('c'))
		die_in_it();
	rc = berth_change(NULL);
	CHECK(!rc, "berth_change", rc);
}

static bool can_go_on(berth_result rc)
{
	return rc == BERTH_PEER_LOST || rc == BERTH_ABORTED || rc == BERTH_TIMEOUT;
}

/* After this step of this world, as all its ranks know. */
static bool is_over(void)
{
	return (until ? stopped : now.step >= steps) && call_world().ranks >= ranks;
}

static void train(int ms)
{
	bool synced = false, changed = false, goes_on = false;
	berth_result rc;

	while (!synced || !is_over()) {
		if (!synced) {
			rc = sync_state();
			synced = !rc;
			if (synced && life > 1)
				printf("rank %d came at step %.0f\n", me, now.step);
			life = synced && life > 1 ? 0 : life; /* said once */
		} else {
			rc = step(ms);
			if (!rc)
				rc = commit(&changed);
			if (!rc)
				begin_to_die();
			if (!rc && !goes_on)
				say_time("goes on");
			goes_on = !rc;
		}
		CHECK(!rc || can_go_on(rc), "operation", rc);
		if (rc || changed) {
			next_world();
			synced = changed = goes_on = false;
		}
	}
}

static int variable(const char *name)
{
	const char *value = getenv(name);

	return value ? atoi(value) : 0;
}

static void read_arguments(int argc, char **argv, int *ms)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	me = variable("BERTH_RANK");
	life = 1 + variable("TORCHELASTIC_RESTART_COUNT");
	CHECK(argc > 1, "arguments", argc);
	if (strchr(argv[1], '/'))
		until = argv[1];
	else
		steps = atoi(argv[1]);
	*ms = argc > 2 ? atoi(argv[2]) : 0;
	for (int i = 3; i < argc && n < DEATHS_MOST; i++, n++) {
		struct death *d = &death[n];

		if (strcmp(argv[i], "all") == 0)
			ranks = variable("WORLD_SIZE");
		else if (strcmp(argv[i], "times") == 0)
			times = true;
		else if (strncmp(argv[i], "dies=", 5) == 0)
			mean_ms = atoi(argv[i] + 5);
		else if (strncmp(argv[i], "mb=", 3) == 0)
			mib = atoi(argv[i] + 3);
		else if (strncmp(argv[i], "saves=", 6) == 0)
			saves = atoi(argv[i] + 6);
		if (!strchr(argv[i], '@')) {
			n--;
			continue;
		}
		d->when = ' ';
		CHECK(sscanf(argv[i], "%d@%d%c", &d->rank, &d->step, &d->when) >= 2,
		      "argument", i);
	}
}

int main(int argc, char **argv)
{
	struct berth_world w;
	int ms;
	berth_result rc;

	read_arguments(argc, argv, &ms);
	take_memory();
	begin(&now);
	saved = now;
	if (dies('i'))
		die();
	if (life > 1)
		begin_to_die();
	rc = berth_init(NULL);
	CHECK(!rc, "berth_init", rc);
	rc = berth_elastic(1);
	CHECK(!rc, "berth_elastic", rc);
	train(ms);
	w = call_world();
	CHECK(error_at_end() < 1e-9, "state, in 1e-12", error_at_end() * 1e12);
	if (w.rank == 0)
		printf("%d ranks, %.0f steps\n", w.ranks, now.step);
	rc = berth_shutdown();
	CHECK(!rc, "berth_shutdown", rc);
	return 0;
}
