/* joins: a rank that does with the library's boot (lib/boot/boot.h) what its words say.
 *
 *   joins WORD...
 *     way           print the way that it takes, or why there is none
 *     join          and memory: of this many bytes, 16 MiB where nothing is said
 *     memory[=N]
 *     late=MS       wait so long in memory before it is prepared for the agent
 *     world         print who it is
 *     fence[=TEXT]  "RANK TEXT" for all; prints what all said
 *     quiet         from here on nothing is printed but errors
 *     share         counts the ranks of this host, in its memory
 *     lost[=N]      wait until the agent has written that N ranks are lost, 1 where
 *                   nothing is said; print which
 *     now           print "now" and the milliseconds of CLOCK_MONOTONIC
 *     op=NAME       begin allreduce NAME of 1024 f32: the next one of all ranks
 *     ends          and end it
 *     stall=TEXT    tell that it waits for the last rank
 *     leave
 *     times=N       all words behind it N times
 *     rank=R        what follows up to "all" is rank R's alone
 *     all
 *     line          wait for a line, or the end, of stdin
 *     sleep=MS
 *     crash         by SIGKILL
 *     exit=N
 *     took          print how many microseconds it took from join to here
 *     mpi           MPI_Init() of the Open MPI that is there, a barrier; print its size
 *     mpi_end       MPI_Finalize()
 *     fork          go on in a child; the parent ends as that does
 *     held          print, at the end, how many descriptors and mappings there are more
 * Exit status 1, with why on stderr, where something fails. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/boot/boot.h"

enum { RANKS_AT = 4096, LOST_AT = 65536, WORDS_AT = 69632, RECORDS_AT = 131072 };

static const struct boot *boot;
static void *state;
static struct boot_world w = { .memory = -1 };
static struct boot_memory *memory;
static bool quiet, joined;
static useconds_t late_us;
static uint64_t began_ns;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void check(berth_result rc, const char *what, const char *why)
{
	if (!rc)
		return;
	fprintf(stderr, "joins: %s: %s (%d)\n", what, why, (int)rc);
	if (joined) /* as berth_init() does */
		boot->leave(state);
	exit(1);
}

static void way(const char *value)
{
	char why[BOOT_WHY_BYTES] = "";
	const struct boot *b = boot_choose(why);

	(void)value;
	printf("%s\n", b ? b->name : why);
}

static void join(const char *value)
{
	char why[BOOT_WHY_BYTES] = "";

	(void)value;
	began_ns = now_ns();
	boot = boot_choose(why);
	check(boot ? BERTH_OK : BERTH_NO_PEERS, "no way", why);
	check(boot->join(&state, &w, NULL, why), "join", why);
	joined = true;
}

/* As lib/boot/memory.h lays it out, as far as the agent looks. */
static void map_memory(const char *value)
{
	size_t bytes = *value ? strtoul(value, NULL, 10) : 16 << 20;
	char why[BOOT_WHY_BYTES] = "";

	check(boot->memory(state, &w, bytes, why), "memory", why);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w.memory, 0);
	check(memory == MAP_FAILED ? BERTH_SYSTEM : BERTH_OK, "mmap", strerror(errno));
	memory->size = w.size;
	memory->local_size = w.local_size;
	memory->version = BOOT_VERSION;
	memory->lost_at = LOST_AT;
	memory->rank_at = RANKS_AT;
	memory->record_at = RECORDS_AT;
	memory->bytes = bytes;
	usleep(late_us);
	__atomic_store_n(&memory->magic, BOOT_MAGIC, __ATOMIC_RELEASE);
}

static void be_late(const char *value)
{
	late_us = (useconds_t)strtoul(value, NULL, 10) * 1000;
}

static void world(const char *value)
{
	(void)value;
	printf("rank %u of %u, local %u of %u, cross %u of %u, on", w.rank, w.size,
	       w.local_rank, w.local_size, w.cross_rank, w.cross_size);
	for (unsigned i = 0; i < w.size; i++)
		printf(" %s", w.host_name[w.host[i]]);
	printf(", key %02x%02x%02x%02x\n", w.key[0], w.key[1], w.key[2], w.key[3]);
}

static berth_result wait_on(void *ctx)
{
	(void)ctx;
	return BERTH_OK;
}

static void fence(const char *value)
{
	const struct boot_patience patient = { wait_on, NULL, NULL };
	char mine[BOOT_TEXT_BYTES], why[BOOT_WHY_BYTES] = "", **all;

	snprintf(mine, sizeof mine, "%u%s", w.rank, value);
	check(boot->fence(state, &w, mine, &patient, &all, why), "fence", why);
	if (!quiet)
		printf("all:");
	for (unsigned i = 0; i < w.size; i++) {
		char want[16];

		if (!quiet)
			printf(" %s", all[i]);
		snprintf(want, sizeof want, "%u", i);
		check(strncmp(all[i], want, strlen(want)) ? BERTH_SYSTEM : BERTH_OK,
		      "fence", "texts of other ranks");
	}
	if (!quiet)
		printf("\n");
	free(all);
}

static void be_quiet(const char *value)
{
	(void)value;
	quiet = true;
}

static _Atomic uint64_t *words(void)
{
	return (_Atomic uint64_t *)((char *)memory + WORDS_AT);
}

static void share(const char *value)
{
	(void)value;
	atomic_fetch_add(words(), 1);
	while (atomic_load(words()) < w.local_size)
		usleep(100);
	printf("all %u ranks of this host share it\n", w.local_size);
}

static void lost(const char *value)
{
	const unsigned char *list = (const unsigned char *)memory + LOST_AT;

	while (atomic_load(&memory->nlost) < (*value ? strtoul(value, NULL, 10) : 1))
		usleep(1000);
	printf("lost:");
	for (unsigned i = 0; i < w.size; i++)
		if (list[i])
			printf(" %u", i);
	printf("\n");
}

static void now(const char *value)
{
	(void)value;
	printf("now %llu\n", (unsigned long long)now_ns() / 1000000);
}

static struct boot_record *record;

static void op(const char *value)
{
	struct boot_rank *me =
		(struct boot_rank *)((char *)memory + RANKS_AT) + w.local_rank;
	uint64_t number = atomic_fetch_add(&me->number, 1) + 1;

	record = (struct boot_record *)((char *)memory + RECORDS_AT) +
		 w.local_rank * BOOT_RECORDS + (number - 1) % BOOT_RECORDS;
	*record = (struct boot_record){ .count = 1024,
					.begun = now_ns(),
					.seq = (uint32_t)number,
					.kind = BERTH_ALLREDUCE,
					.type = BERTH_F32 };
	snprintf(record->name, sizeof record->name, "%s", value);
	atomic_store(&record->state, BOOT_RECORD_RUNS);
	atomic_store(&record->number, number);
}

static void end_op(const char *value)
{
	(void)value;
	atomic_store(&record->state, BOOT_RECORD_DONE);
}

static void stall(const char *value)
{
	const unsigned last = w.size - 1;

	boot->stall(state, &last, 1, value);
}

static void leave(const char *value)
{
	(void)value;
	if (memory)
		munmap(memory, w.memory_bytes);
	memory = NULL;
	boot->leave(state);
	boot_world_free(&w);
	joined = false;
}

static void wait_line(const char *value)
{
	char line[256];

	(void)value;
	if (!fgets(line, sizeof line, stdin))
		return;
}

static void wait_ms(const char *value)
{
	usleep((useconds_t)strtoul(value, NULL, 10) * 1000);
}

static void crash(const char *value)
{
	(void)value;
	kill(getpid(), SIGKILL);
}

static void end(const char *value)
{
	exit((int)strtol(value, NULL, 10));
}

static void took(const char *value)
{
	(void)value;
	printf("took %llu us\n", (unsigned long long)(now_ns() - began_ns) / 1000);
}

static void *mpi_function(const char *name)
{
	static void *lib;
	void *f;

	if (!lib)
		lib = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
	f = lib ? dlsym(lib, name) : NULL;
	check(f ? BERTH_OK : BERTH_SYSTEM, name, f ? "" : dlerror());
	return f;
}

static void mpi(const char *value)
{
	int (*init)(int *, char ***) =
		(int (*)(int *, char ***))mpi_function("MPI_Init");
	int (*barrier)(void *) = (int (*)(void *))mpi_function("MPI_Barrier");
	int (*size_of)(void *, int *) =
		(int (*)(void *, int *))mpi_function("MPI_Comm_size");
	void *world = mpi_function("ompi_mpi_comm_world");
	int size = 0;

	(void)value;
	if (init(NULL, NULL) || barrier(world) || size_of(world, &size))
		check(BERTH_SYSTEM, "mpi", "an error");
	printf("MPI: %d ranks\n", size);
}

static void mpi_end(const char *value)
{
	(void)value;
	((int (*)(void))mpi_function("MPI_Finalize"))();
}

static void fork_here(const char *value)
{
	pid_t pid = fork();
	int status = 0;

	(void)value;
	if (!pid)
		return;
	waitpid(pid, &status, 0);
	printf("child: %d\n", WEXITSTATUS(status));
	exit(0);
}

static int count_lines(const char *path)
{
	FILE *f = fopen(path, "re");
	int n = 0, c;

	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

static void count_held(int *descriptors, int *mappings)
{
	*descriptors = 0;
	for (int fd = 0; fd < 1024; fd++)
		*descriptors += fcntl(fd, F_GETFD) >= 0;
	*mappings = count_lines("/proc/self/maps");
}

static int held_descriptors, held_mappings;

static void say_held(void)
{
	int descriptors, mappings;

	count_held(&descriptors, &mappings);
	printf("held: %d descriptors, %d mappings more\n",
	       descriptors - held_descriptors, mappings - held_mappings);
}

static void held(const char *value)
{
	(void)value;
	count_held(&held_descriptors, &held_mappings);
	atexit(say_held);
}

static const struct {
	const char *word;
	void (*act)(const char *value);
} acts[] = {
	{ "way", way },        { "join", join },      { "memory", map_memory },
	{ "world", world },    { "fence", fence },    { "quiet", be_quiet },
	{ "share", share },    { "lost", lost },      { "stall", stall },
	{ "leave", leave },    { "line", wait_line }, { "sleep", wait_ms },
	{ "crash", crash },    { "exit", end },       { "took", took },
	{ "now", now },        { "op", op },          { "ends", end_op },
	{ "held", held },      { "mpi", mpi },        { "mpi_end", mpi_end },
	{ "fork", fork_here }, { "late", be_late },
};

static void act(const char *word)
{
	size_t n = strcspn(word, "=");

	for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
		if (strlen(acts[i].word) == n && !strncmp(acts[i].word, word, n)) {
			acts[i].act(word + n + (word[n] == '='));
			fflush(stdout);
			return;
		}
	fprintf(stderr, "joins: no such word: %s\n", word);
	exit(2);
}

int main(int argc, char **argv)
{
	const char *self = getenv(getenv("BERTH_RANK") ? "BERTH_RANK" : "PMIX_RANK");
	bool mine = true;

	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], "rank=", 5)) {
			mine = self && !strcmp(self, argv[i] + 5);
		} else if (!strcmp(argv[i], "all")) {
			mine = true;
		} else if (!strncmp(argv[i], "times=", 6)) {
			for (long n = strtol(argv[i] + 6, NULL, 10); n > 0; n--)
				for (int k = i + 1; k < argc; k++)
					act(argv[k]);
			return 0;
		} else if (mine) {
			act(argv[i]);
		}
	}
	return 0;
}
