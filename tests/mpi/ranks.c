/* What the ranks of tests/cluster/mpi.bats do, with any MPI: `ranks CASE [NUMBER]`.
 *
 *   nothing    MPI_Init and MPI_Finalize
 *   hello      who am I, by MPI and by Berth; a sum
 *   ring       NUMBER times a token around all ranks
 *   sums       NUMBER sums of whole arrays
 *   dups       NUMBER communicators, each with a sum
 *   barriers   NUMBER barriers
 *   all        hello, ring, sums and dups of NUMBER, and 10 times as many barriers
 *   masks      which CPUs have our threads, and have they others than Berth gave?
 *   published  rank 0 publishes a text, the others look it up, rank 0 takes it back
 *   phases     in folder NUMBER it tells what it does: init, loop, finalize, end.
 *              The loop ends once the folder has a file "leave"
 *   names      half of the ranks publish a port, the others look it up and connect
 *   sessions   a communicator without MPI_Init, by MPI Sessions
 *   abort      rank 1 calls MPI_Abort with NUMBER, the others wait
 *   exit       rank 1 exits with NUMBER after MPI_Init, the others wait
 *   early      rank 1 exits with NUMBER instead of MPI_Init */
#define _GNU_SOURCE
#include <dirent.h>
#include <mpi.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static int number_of(const char *name)
{
	const char *value = getenv(name);

	return value ? (int)strtol(value, NULL, 10) : -1;
}

static int sum_in(MPI_Comm all)
{
	int sum = 0;

	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
	return sum;
}

/* HOST: the ranks of this one's host. */
static bool is_as_berth_says(MPI_Comm host, int local, int locals)
{
	int node[2] = { number_of("BERTH_NODE_RANK"), -number_of("BERTH_NODE_RANK") };
	int most[2];

	MPI_Allreduce(node, most, 2, MPI_INT, MPI_MAX, host);
	return most[0] == -most[1] && rank == number_of("BERTH_RANK") &&
	       size == number_of("BERTH_SIZE") &&
	       local == number_of("BERTH_LOCAL_RANK") &&
	       locals == number_of("BERTH_LOCAL_SIZE");
}

static void hello(void)
{
	MPI_Comm host;
	int local, locals;
	bool same;

	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
			    &host);
	MPI_Comm_rank(host, &local);
	MPI_Comm_size(host, &locals);
	same = !getenv("BERTH_JOB") || is_as_berth_says(host, local, locals);
	MPI_Comm_free(&host);
	printf("rank %d of %d, local %d of %d, sum %d%s\n", rank, size, local, locals,
	       sum_in(MPI_COMM_WORLD), same ? "" : ", not as Berth says");
}

static void ring(int times)
{
	int token = 0;

	/* a rank alone may wait for ever to send to itself */
	for (int i = 0; size == 1 && i < times; i++)
		token++;
	for (int i = 0; size > 1 && i < times; i++) {
		if (rank == 0)
			MPI_Send(&token, 1, MPI_INT, 1 % size, 0, MPI_COMM_WORLD);
		MPI_Recv(&token, 1, MPI_INT, (rank + size - 1) % size, 0,
			 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		token++;
		if (rank)
			MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0,
				 MPI_COMM_WORLD);
	}
	if (rank == 0)
		printf("token %d\n", token);
}

static void sums(int times)
{
	enum { COUNT = 1000 };
	int in[COUNT], out[COUNT], wrong = 0;

	for (int i = 0; i < times; i++) {
		for (int k = 0; k < COUNT; k++)
			in[k] = rank * k + i;
		MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		for (int k = 0; k < COUNT; k++)
			wrong += out[k] != size * (size - 1) / 2 * k + size * i;
	}
	printf("%d sums, %d numbers wrong\n", times, wrong);
}

static void dups(int times)
{
	int wrong = 0;

	for (int i = 0; i < times; i++) {
		MPI_Comm all;

		MPI_Comm_dup(MPI_COMM_WORLD, &all);
		wrong += sum_in(all) != size * (size - 1) / 2;
		MPI_Comm_free(&all);
	}
	printf("%d communicators, %d wrong\n", times, wrong);
}

static void barriers(int times)
{
	for (int i = 0; i < times; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	printf("%d barriers\n", times);
}

static void all(int times)
{
	hello();
	ring(times);
	sums(times);
	dups(times);
	barriers(10 * times);
}

/* ---- masks ---- */

enum { LIST_BYTES = 4096 };

/* CPUs of a thread as lists, by the kernel's file and by the system call.  On a host
 * that only seems to have its CPUs (tests/cluster/fakecpus.c) the call says where the
 * thread would be, and the file never changes. */
struct masks {
	char kernel[LIST_BYTES], call[LIST_BYTES];
};

static struct masks before; /* MPI_Init */

/* What the kernel says of TASK, as a list; "" if that task is gone. */
static void list_of_kernel(char *list, const char *task)
{
	static const char key[] = "Cpus_allowed_list:\t";
	char path[300], line[LIST_BYTES];
	FILE *f;

	*list = '\0';
	snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, key, sizeof key - 1)) {
			line[strcspn(line, "\n")] = '\0';
			snprintf(list, LIST_BYTES, "%s", line + sizeof key - 1);
		}
	if (f)
		fclose(f);
}

/* What sched_getaffinity() says of TASK, as a list. */
static void list_of_call(char *list, const char *task)
{
	cpu_set_t set;
	size_t at = 0;

	*list = '\0';
	if (sched_getaffinity((pid_t)strtol(task, NULL, 10), sizeof set, &set))
		return;
	for (int i = 0, from; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &set))
			continue;
		for (from = i; i + 1 < CPU_SETSIZE && CPU_ISSET(i + 1, &set); i++)
			;
		at += (size_t)snprintf(list + at, LIST_BYTES - at,
				       from < i ? "%s%d-%d" : "%s%d", at ? "," : "",
				       from, i);
	}
}

static void masks_of(struct masks *m, const char *task)
{
	list_of_kernel(m->kernel, task);
	list_of_call(m->call, task);
}

/* MPI starts threads of its own in MPI_Init. */
static void masks(void)
{
	const char *ours = getenv("BERTH_CPUS");
	DIR *d = opendir("/proc/self/task");
	struct dirent *task;
	struct masks is;
	int threads = 0, wrong = 0;

	while (d && (task = readdir(d))) {
		if (*task->d_name == '.')
			continue;
		masks_of(&is, task->d_name);
		if (!*is.kernel || !*is.call) /* it has ended */
			continue;
		threads++;
		wrong += strcmp(is.kernel, before.kernel) ||
			 strcmp(is.call, ours && *ours ? ours : before.call);
	}
	if (d)
		closedir(d);
	printf("rank %d: cpus %s, %s, %d threads elsewhere\n", rank, before.call,
	       threads ? "seen" : "blind", wrong);
}

/* What the text is published for is nothing to MPI. */
static void published(void)
{
	static const char name[] = "berth, a test #1", text[] = "tag#0$berth#text#";
	char port[MPI_MAX_PORT_NAME] = "";
	int twice = 0, absent, gone;

	/* MPI decides which one errors of names are given to */
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	if (!rank) {
		snprintf(port, sizeof port, "%s", text);
		if (MPI_Publish_name(name, MPI_INFO_NULL, port))
			printf("not published\n");
		twice = MPI_Publish_name(name, MPI_INFO_NULL, port) != MPI_SUCCESS;
		memset(port, 0, sizeof port);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	absent = MPI_Lookup_name("berth, a test #2", MPI_INFO_NULL, port);
	if (MPI_Lookup_name(name, MPI_INFO_NULL, port))
		printf("not found\n");
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank && MPI_Unpublish_name(name, MPI_INFO_NULL, port))
		printf("not taken back\n");
	MPI_Barrier(MPI_COMM_WORLD);
	gone = MPI_Lookup_name(name, MPI_INFO_NULL, port);
	printf("rank %d: %s%s%s%s\n", rank, strcmp(port, text) ? "other text" : "found",
	       twice ? ", not twice" : "", absent ? ", no other" : "",
	       gone ? ", gone" : "");
}

/* ---- phases ---- */

/* A line of our file in FOLDER. */
static void tell(const char *folder, const char *phase)
{
	char path[300];
	FILE *f;

	snprintf(path, sizeof path, "%s/%d", folder, number_of("BERTH_RANK"));
	f = fopen(path, "a");
	if (!f)
		return;
	fprintf(f, "%s %d\n", phase, (int)getpid());
	fclose(f);
}

/* Not all at one time. */
static void stagger(void)
{
	enum { STEP_MS = 37, MOST_MS = 120 };

	usleep((useconds_t)(getpid() * STEP_MS % MOST_MS * 1000));
}

static void loop(const char *folder)
{
	char path[300];
	int leave = 0;

	snprintf(path, sizeof path, "%s/leave", folder);
	while (!leave) {
		leave = !rank && !access(path, F_OK);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Bcast(&leave, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
}

static int phases(const char *folder)
{
	tell(folder, "init");
	stagger();
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	tell(folder, "loop");
	loop(folder);
	tell(folder, "finalize");
	stagger();
	MPI_Finalize();
	tell(folder, "end");
	return 0;
}

/* The first half is the server. */
static void names(void)
{
	char port[MPI_MAX_PORT_NAME] = "";
	const int serves = rank < size / 2;
	MPI_Comm half, others, all;
	int first;

	MPI_Comm_split(MPI_COMM_WORLD, serves, rank, &half);
	MPI_Comm_rank(half, &first);
	if (serves && !first) {
		MPI_Open_port(MPI_INFO_NULL, port);
		MPI_Publish_name("berth test", MPI_INFO_NULL, port);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (!serves && !first)
		MPI_Lookup_name("berth test", MPI_INFO_NULL, port);
	if (serves)
		MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &others);
	else
		MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &others);
	MPI_Intercomm_merge(others, serves, &all);
	printf("connected, sum %d\n", sum_in(all));
	MPI_Comm_free(&all);
	MPI_Comm_disconnect(&others);
	if (serves && !first) {
		MPI_Unpublish_name("berth test", MPI_INFO_NULL, port);
		MPI_Close_port(port);
	}
	MPI_Comm_free(&half);
}

static int sessions(void)
{
#if MPI_VERSION >= 4 || defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5
	MPI_Session session;
	MPI_Group group;
	MPI_Comm all;

	MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
	MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
	MPI_Comm_create_from_group(group, "berth test", MPI_INFO_NULL,
				   MPI_ERRORS_ARE_FATAL, &all);
	MPI_Comm_rank(all, &rank);
	MPI_Comm_size(all, &size);
	printf("session of %d, sum %d\n", size, sum_in(all));
	fflush(stdout);
	MPI_Group_free(&group);
	MPI_Comm_free(&all);
	MPI_Session_finalize(&session);
#endif
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "hello";
	const int n = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
	char self[32];

	if (!strcmp(what, "early") && number_of("BERTH_RANK") == 1)
		return n;
	if (!strcmp(what, "sessions"))
		return sessions();
	if (!strcmp(what, "phases"))
		return phases(argc > 2 ? argv[2] : ".");
	if (!strcmp(what, "masks")) {
		snprintf(self, sizeof self, "%d", (int)getpid());
		masks_of(&before, self);
	}
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (!strcmp(what, "ring"))
		ring(n);
	else if (!strcmp(what, "sums"))
		sums(n);
	else if (!strcmp(what, "dups"))
		dups(n);
	else if (!strcmp(what, "barriers"))
		barriers(n);
	else if (!strcmp(what, "all"))
		all(n);
	else if (!strcmp(what, "masks"))
		masks();
	else if (!strcmp(what, "published"))
		published();
	else if (!strcmp(what, "names"))
		names();
	else if (!strcmp(what, "hello"))
		hello();
	else if (!strcmp(what, "abort") && rank == 1)
		MPI_Abort(MPI_COMM_WORLD, n);
	else if (!strcmp(what, "exit") && rank == 1)
		exit(n);
	if (!strcmp(what, "abort") || !strcmp(what, "exit"))
		MPI_Barrier(MPI_COMM_WORLD);
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
