/* berth-agent: signals, exits, and that no process survives agent or guardian.
 * takes_s: 37 */
#include "far.h"

#include <ctype.h>
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "agent/ranks/io.h"

static struct far far;

/* What users run: a script with a background child, one in a session of its own, one
 * forked twice, and a pipe between two. */
#define FAMILY                                                                         \
	"sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000 & "   \
	"wait' "                                                                       \
	"& ) ; trap '' TERM HUP; cat /dev/zero | sleep 1000 & echo ready; wait; wait"

static void job(const struct far_job *j)
{
	far_open(&far, NULL, NULL);
	far_start(&far, j);
}

static void until_ready(size_t n)
{
	for (size_t i = 0; i < n; i++)
		far_until(&far, strstr(str_text(&far.rank[i].out[1]), "ready"));
}

/* How many live processes carry our JOB_ID in their environment. */
static size_t carriers(const char *job_id)
{
	DIR *dir = opendir("/proc");
	char word[80], path[64], text[16384];
	struct dirent *d;
	size_t n = 0;

	snprintf(word, sizeof word, "BERTH_JOB=%s", far_job_id(job_id));
	while ((d = readdir(dir))) {
		ssize_t got;
		int fd;

		snprintf(path, sizeof path, "/proc/%.20s/environ", d->d_name);
		if (!isdigit((unsigned char)*d->d_name) ||
		    (fd = open(path, O_RDONLY)) < 0)
			continue;
		got = read(fd, text, sizeof text);
		n += got > 0 && memmem(text, (size_t)got, word, strlen(word) + 1);
		close(fd);
	}
	closedir(dir);
	return n;
}

static pid_t agent_of(pid_t guardian)
{
	char path[64];
	int agent = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/task/%d/children", guardian, guardian);
	f = fopen(path, "r");
	ck_assert(f && fscanf(f, "%d", &agent) == 1);
	fclose(f);
	return agent;
}

/* ---- sandboxes and cgroups ---- */

/* System call NUMBER does ACTION in this process and in all that it starts. */
static void forbid(unsigned number, unsigned action)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };

	prctl(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* As in the sandbox of an older container engine. */
static void forbid_clone3(void)
{
	enum { CALL_CLONE3 = 435 };

	forbid(CALL_CLONE3, SECCOMP_RET_ERRNO | ENOSYS);
}

static void kill_by_number_is_fatal(void)
{
	forbid(SYS_kill, SECCOMP_RET_KILL_PROCESS);
}

/* Is PID in a cgroup that an agent made? */
static bool in_cgroup(pid_t pid)
{
	char path[64], text[4096];
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	n = read(fd, text, sizeof text - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return strstr(text, "/berth-");
}

/* ---- signals ---- */

/* Which of two ranks failed first follows from when their exits began.  If the rank had
 * no turn for long, the test says nothing: once more. */
START_TEST(an_exit_begins_with_the_liveness_pipe)
{
	const char *script = "exec 1023>&-; echo ready; sleep .02; exit 3";
	uint64_t begun_ns, seen_ns;

	far_open(&far, NULL, NULL);
	do {
		begun_ns = clock_ns();
		far_start(&far, &(struct far_job){ .argv = { SH(script) } });
		until_ready(1);
		seen_ns = clock_ns();
		far_until(&far, far.nended == 1);
		ck_assert_int_eq((int)far.rank[0].status, 3 << 8);
		far_end(&far, 0);
	} while (far.rank[0].began_ns > seen_ns &&
		 far.rank[0].began_ns - begun_ns >= EXIT_LASTS_MS * 1000000ull);
	ck_assert_uint_le(far.rank[0].began_ns, seen_ns);
	far_close(&far);
}
END_TEST

/* 64 MiB are touched in a child that the rank reaps; the time is the rank's own. */
START_TEST(an_exit_says_what_was_used)
{
	const char *script =
		"python3 -c 'b\"x\" * (64 << 20)'; "
		"while [ $(cut -d' ' -f14 /proc/$$/stat) -lt 5 ]; do :; done";
	const struct far_rank *r = &far.rank[0];

	far_open(&far, NULL, NULL);
	far_start(&far, &(struct far_job){ .argv = { SH(script), ARGV("true") } });
	far_until(&far, far.nended == 2);
	ck_assert_uint_ge(r->cpu_us, 50000);
	ck_assert_uint_le(r->cpu_us, (clock_ns() - far.start_ns) / 1000 + 100000);
	ck_assert_uint_ge(r->peak_bytes, 64 << 20);
	ck_assert_uint_lt(r->peak_bytes, 256 << 20);
	ck_assert_uint_lt(far.rank[1].peak_bytes, 64 << 20);
	far_end(&far, 0);
	far_close(&far);
}
END_TEST

#define ERROR "Traceback (most recent call last)"

/* Of two errors in a row the first counts, however long the rank needs to exit. */
START_TEST(an_error_has_the_time_when_it_was_printed)
{
	const char *script = "echo '" ERROR "' >&2; read; echo '" ERROR "' >&2; read; "
			     "exit 3";
	const struct far_rank *r = &far.rank[0];
	uint64_t seen_ns, again_ns;

	far_open(&far, NULL, NULL);
	far_start(&far,
		  &(struct far_job){ .argv = { SH(script) }, .stdin_rank_plus_1 = 1 });
	far_until(&far, r->out[2].len == sizeof ERROR);
	seen_ns = clock_ns();
	FAR_SEND(&far, input, far.epoch, { "\n", 1 });
	far_until(&far, r->out[2].len == 2 * sizeof ERROR);
	again_ns = clock_ns();
	FAR_SEND(&far, input, far.epoch, { "\n", 1 });
	far_until(&far, far.nended == 1);
	ck_assert_uint_gt(r->error_printed_ns, far.start_ns);
	if (again_ns - far.start_ns < ERROR_TO_EXIT_MS * 1000000ull)
		ck_assert_uint_lt(r->error_printed_ns, seen_ns);
	ck_assert_uint_gt(r->began_ns, again_ns);
	far_end(&far, 0);
	far_close(&far);
}
END_TEST

START_TEST(no_error_has_no_time)
{
	far_open(&far, NULL, NULL);
	far_start(&far,
		  &(struct far_job){ .argv = { SH("echo '" ERROR "'; exit 3") } });
	far_until(&far, far.nended == 1);
	ck_assert_uint_eq(far.rank[0].error_printed_ns, 0);
	far_end(&far, 0);
	far_close(&far);
}
END_TEST

/* A rank that printed an error exits by itself, unless that takes it too long. */
START_TEST(a_stop_waits_for_an_exit_that_is_near)
{
	const char *script = "echo '" ERROR "' >&2; sleep .05; exit 3";
	const struct far_rank *r = &far.rank[0];
	uint64_t began_ns;

	far_open(&far, NULL, NULL);
	do {
		far_start(&far, &(struct far_job){ .argv = { SH(script) } });
		far_until(&far, r->out[2].len == sizeof ERROR);
		began_ns = clock_ns();
		FAR_SEND(&far, stop, far.epoch, 10000);
		far_until(&far, far.gone);
	} while ((int)r->status != 3 << 8 &&
		 clock_ns() - began_ns >= EXIT_LASTS_MS * 1000000ull);
	ck_assert_int_eq((int)r->status, 3 << 8);
	far_close(&far);
}
END_TEST

START_TEST(a_stop_does_not_wait_for_longer)
{
	const char *script = "echo '" ERROR "' >&2; sleep 1000";

	far_open(&far, NULL, NULL);
	far_start(&far, &(struct far_job){ .argv = { SH(script) } });
	far_until(&far, far.rank[0].out[2].len == sizeof ERROR);
	far_end(&far, 10000);
	ck_assert_int_eq((int)far.rank[0].status, SIGTERM);
	far_close(&far);
}
END_TEST

START_TEST(signal_to_main_process)
{
	job(&(struct far_job){ .argv = { ARGV("sleep", "1000") }, .n = 2 });
	far_until(&far, far.rank[1].started);
	FAR_SEND(&far, signal, SIGUSR2, 0);
	far_until(&far, far.nended == 2);
	ck_assert_int_eq((int)far.rank[0].status, W_EXITCODE(0, SIGUSR2));
	far_end(&far, 0);
	far_close(&far);
}
END_TEST

START_TEST(shells_children_get_it_too)
{
	/* The child is a program that saves its work at TERM; bash alone would wait for
	 * it. */
	job(&(struct far_job){
		.argv = { SH(
			"trap 'echo shell' TERM; python3 -c '\n"
			"import signal, sys\n"
			"signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
			"print(\"ready\", flush=True)\n"
			"signal.sigwait([signal.SIGTERM])\n"
			"print(\"saved\", flush=True); sys.exit(3)'; echo code "
			"$?") } });
	until_ready(1);
	FAR_SEND(&far, signal, SIGTERM, 0);
	far_until(&far, far.nended == 1);
	ck_assert_str_eq(str_text(&far.rank[0].out[1]),
			 "ready\nsaved\nshell\ncode 3\n");
	far_end(&far, 0);
	far_close(&far);
}
END_TEST

START_TEST(grandchildren_are_spared)
{
	/* A program with a worker, as a DataLoader's: TERM is for the program alone. */
	job(&(struct far_job){
		.argv = { ARGV(
			"python3", "-c",
			"import subprocess, signal\n"
			"w = subprocess.Popen(['sleep', '1000'])\n"
			"signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
			"print('ready', flush=True)\n"
			"signal.sigwait([signal.SIGTERM])\n"
			"print('worker', w.poll(), flush=True)\n") } });
	until_ready(1);
	FAR_SEND(&far, signal, SIGTERM, 0);
	far_until(&far, far.nended == 1);
	ck_assert_str_eq(str_text(&far.rank[0].out[1]), "ready\nworker None\n");
	far_end(&far, 0);
	far_close(&far);
}
END_TEST

START_TEST(stop_and_cont_reach_the_tree)
{
	/* A child writes lines; stopped, it writes none. */
	job(&(struct far_job){ .argv = { SH("(while :; do echo x; done) & wait") },
			       .credit = 4096 });
	far_until(&far, far.credit_left <= WIRE_OUTPUT_HEAD_BYTES);
	FAR_SEND(&far, signal, SIGSTOP, 1);
	far_sync(&far);
	far.refill = true; /* the pipe's rest, then nothing: see it dry up */
	far.credit_left += 1 << 20;
	FAR_SEND(&far, credit, far.epoch, 1 << 20);
	for (size_t before = 0, quiet = 0; quiet < 50;) {
		far_sync(&far);
		quiet = far.output_bytes == before ? quiet + 1 : 0;
		before = far.output_bytes;
	}
	{
		uint64_t before = far.output_bytes;

		FAR_SEND(&far, signal, SIGCONT, 1);
		far_until(&far, far.output_bytes > before + 4096);
	}
	FAR_SEND(&far, signal, SIGKILL, 1);
	far_until(&far, far.nended == 1);
	ck_assert_int_eq((int)far.rank[0].status, W_EXITCODE(0, SIGKILL));
	ck_assert_uint_eq(far.rank[0].oom, 0);
	far_end(&far, 0);
	far_close(&far);
}
END_TEST

/* TERM to the agent, as a resource manager sends to all: the ranks hear of it. */
START_TEST(term_to_the_agent)
{
	job(&(struct far_job){ .argv = { SH("trap 'exit 9' TERM; echo ready; while :; "
					    "do sleep 0.01; done") } });
	until_ready(1);
	kill(far.guardian, SIGTERM);
	far_until(&far, far.nended == 1);
	ck_assert_int_eq((int)far.rank[0].status, W_EXITCODE(9, 0));
	far_end(&far, 0);
	far_close(&far);
}
END_TEST

/* ---- end ---- */

START_TEST(end_gives_grace)
{
	job(&(struct far_job){
		.argv = { SH("trap 'echo saved; exit 7' TERM; echo ready; "
			     "while :; do sleep 0.01; done") },
		.n = 3 });
	until_ready(3);
	far_end(&far, GRACE_NEVER);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq((int)far.rank[i].status, W_EXITCODE(7, 0));
		ck_assert_str_eq(str_text(&far.rank[i].out[1]), "ready\nsaved\n");
	}
	far_close(&far);
}
END_TEST

START_TEST(end_kills_after_grace)
{
	uint64_t begin;

	job(&(struct far_job){ .argv = { SH(FAMILY) }, .n = 2, .job_id = "graced" });
	until_ready(2);
	while (carriers("graced") < 12) /* the last are not awaited by those that are */
		sched_yield();
	begin = clock_ms();
	far_end(&far, 300);
	ck_assert_uint_ge(clock_ms() - begin, 300);
	ck_assert_int_eq((int)far.rank[0].status, W_EXITCODE(0, SIGKILL));
	ck_assert_uint_eq(far.unkillable, 0);
	ck_assert_uint_eq(carriers("graced"), 0);
	far_close(&far);
}
END_TEST

START_TEST(second_end_kills_now)
{
	job(&(struct far_job){ .argv = { SH(FAMILY) }, .job_id = "second" });
	until_ready(1);
	FAR_SEND(&far, stop, far.epoch, GRACE_NEVER);
	far_until(&far, far.ending);
	far_sync(&far);
	ck_assert_uint_eq(far.nended, 0);
	far_end(&far, 0);
	ck_assert_uint_eq(carriers("second"), 0);
	far_close(&far);
}
END_TEST

START_TEST(stopped_ranks_act_on_end)
{
	job(&(struct far_job){ .argv = { SH("trap 'exit 7' TERM; echo ready; while :; "
					    "do sleep 0.01; done") } });
	until_ready(1);
	FAR_SEND(&far, signal, SIGSTOP, 1);
	far_end(&far, GRACE_NEVER);
	ck_assert_int_eq((int)far.rank[0].status, W_EXITCODE(7, 0));
	far_close(&far);
}
END_TEST

/* Main processes gone, their children not: `end` takes these without waiting for a
 * grace. */
START_TEST(end_after_the_last)
{
	uint64_t begin;

	job(&(struct far_job){
		.argv = { SH("setsid sleep 1000 & sleep 1000 & exit 2") },
		.n = 2,
		.job_id = "last" });
	far_until(&far, far.nended == 2);
	while (carriers("last") < 4) /* who execs has no environment for a moment */
		sched_yield();
	begin = clock_ms();
	far_end(&far, 60000);
	ck_assert_uint_lt(clock_ms() - begin, 10000);
	ck_assert_uint_eq(carriers("last"), 0);
	far_close(&far);
}
END_TEST

/* A process that forks as fast as it can is hard to hit. */
START_TEST(end_of_a_forking_family)
{
	job(&(struct far_job){
		.argv = { SH(
			"f() { (f) & sleep 0.01; }; (f) & (f) & echo ready; wait") },
		.job_id = "forking" });
	until_ready(1);
	far_end(&far, 0);
	ck_assert_uint_eq(far.unkillable, 0);
	ck_assert_uint_eq(carriers("forking"), 0);
	far_close(&far);
}
END_TEST

/* ---- nothing survives ---- */

/* Every process that agent and guardian leave behind comes to us: end them all and
 * count. */
static size_t inherited(void)
{
	size_t n = 0;

	while (waitpid(-1, NULL, 0) > 0)
		n++;
	return n;
}

START_TEST(launcher_is_lost)
{
	job(&(struct far_job){ .argv = { SH(FAMILY) }, .n = 2, .job_id = "launcher" });
	until_ready(2);
	close(far.fd);
	far.fd = -1;
	far_reap(&far);
	ck_assert_uint_eq(carriers("launcher"), 0);
	far_free(&far);
}
END_TEST

/* Both orders in one piece: no rank may begin where `gone` is on its way. */
START_TEST(start_after_end)
{
	struct buf b = { 0 };

	far_open(&far, NULL, NULL);
	far_job(&far, &(struct far_job){ .argv = { SH(FAMILY) }, .job_id = "late" });
	far_until(&far, far.placed);
	wire_pack_stop(&b, &(struct wire_stop){ far.epoch, 0 });
	wire_pack_start(&b, &(struct wire_start){ .epoch = far.epoch });
	far_send(&far, &b);
	far_until(&far, far.gone);
	ck_assert(!far.rank[0].started);
	ck_assert_uint_eq(carriers("late"), 0);
	far_close(&far);
}
END_TEST

/* The stream is open but nothing comes: given up 15 s after the host timeout, unless
 * the launcher said that it is going to be stopped. */
START_TEST(launcher_is_silent)
{
	const struct far_job silent = { .argv = { SH(FAMILY) },
					.job_id = "silent",
					.host_timeout = 1 };
	struct far other = { 0 };

	job(&silent);
	far_open(&other, NULL, NULL);
	far_start(&other, &(struct far_job){ .argv = { ARGV("sleep", "1000") },
					     .host_timeout = 1 });
	FAR_SEND(&other, suspend);
	until_ready(1);
	while (!far.eof)
		far_next(&far);
	far_reap(&far);
	ck_assert_uint_eq(carriers("silent"), 0);
	far_free(&far);
	FAR_SEND(&other, resume);
	far_sync(&other);
	far_end(&other, 0);
	far_close(&other);
}
END_TEST

START_TEST(bye_during_a_job)
{
	job(&(struct far_job){ .argv = { SH(FAMILY) }, .n = 2, .job_id = "bye" });
	until_ready(2);
	far.refill = false;
	far_close(&far);
	ck_assert_uint_eq(carriers("bye"), 0);
}
END_TEST

START_TEST(agent_is_killed)
{
	job(&(struct far_job){ .argv = { SH(FAMILY) }, .n = 2, .job_id = "agent" });
	until_ready(2);
	kill(agent_of(far.guardian), SIGKILL);
	while (!far.eof) /* the launcher sees the end of the stream at once */
		far_next(&far);
	ck_assert_int_eq(far_reap(&far), W_EXITCODE(128 + SIGKILL, 0));
	ck_assert_uint_eq(carriers("agent"), 0);
	far_free(&far);
}
END_TEST

START_TEST(guardian_is_killed)
{
	pid_t agent;
	int status;

	job(&(struct far_job){ .argv = { SH(FAMILY) }, .n = 2, .job_id = "guardian" });
	until_ready(2);
	agent = agent_of(far.guardian);
	kill(far.guardian, SIGKILL);
	ck_assert_int_eq(far_reap(&far), SIGKILL);
	ck_assert_int_eq(waitpid(agent, &status, 0), agent);
	ck_assert(WIFEXITED(status));
	ck_assert_uint_eq(carriers("guardian"), 0);
	far_free(&far);
}
END_TEST

static size_t sweep(const char *job_id)
{
	char path[PATH_MAX], text[64] = "";
	int out[2], status;
	pid_t pid;

	far_agent_path(path, sizeof path);
	ck_assert_int_eq(pipe(out), 0);
	pid = fork();
	if (!pid) {
		dup2(out[1], 1);
		kill_by_number_is_fatal();
		execl(path, "berth-agent", "--sweep", job_id, (char *)NULL);
		_exit(99);
	}
	close(out[1]);
	ck_assert_int_gt(read(out[0], text, sizeof text - 1), 0);
	close(out[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	return (size_t)strtoul(text, NULL, 10);
}

static void kill_both(void)
{
	pid_t agent = agent_of(far.guardian);

	kill(far.guardian, SIGSTOP);
	kill(agent, SIGSTOP);
	kill(far.guardian, SIGKILL);
	kill(agent, SIGKILL);
	far_reap(&far);
	waitpid(agent, NULL, 0);
}

/* Both in one blow: death signals take the main processes, --sweep the rest; first by
 * the cgroup, if this user may make one, then by their environment. */
START_TEST(both_are_killed)
{
	far.prepare = _i ? forbid_clone3 : NULL;
	job(&(struct far_job){ .argv = { SH(FAMILY) }, .n = 2, .job_id = "both" });
	until_ready(2);
	ck_assert(!_i || !in_cgroup((pid_t)far.rank[0].pid));
	kill_both();
	ck_assert_uint_eq(sweep("bot"), 0);
	ck_assert_uint_ge(sweep(far_job_id("both")), 8);
	ck_assert_uint_eq(sweep(far_job_id("both")), 0);
	ck_assert_uint_eq(carriers("both"), 0);
	inherited();
	far_free(&far);
}
END_TEST

/* An agent that was stopped goes on and ends by itself. */
START_TEST(sweep_ends_a_stopped_agent)
{
	job(&(struct far_job){ .argv = { SH(FAMILY) }, .job_id = "stopped" });
	until_ready(1);
	kill(agent_of(far.guardian), SIGSTOP);
	close(far.fd);
	far.fd = -1;
	ck_assert_uint_ge(sweep(far_job_id("stopped")), 4);
	far_reap(&far);
	ck_assert_uint_eq(carriers("stopped"), 0);
	far_free(&far);
}
END_TEST

/* A process called berth-agent that listens as JOB_ID's agent would, as user 65534. */
static pid_t impostor(const char *job_id)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "berth-job-%s", job_id);
	int up[2], fd;
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(up), 0);
	pid = fork();
	if (!pid) {
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		prctl(PR_SET_NAME, "berth-agent");
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setresuid(65534, 65534, 65534) ||
		    bind(fd, (struct sockaddr *)&a,
			 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
				     (size_t)n)) ||
		    listen(fd, 1) || write(up[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(up[1]);
	ck_assert_int_eq(read(up[0], &byte, 1), 1);
	close(up[0]);
	return pid;
}

START_TEST(sweep_ignores_another_users_socket)
{
	pid_t pid;

	if (geteuid())
		return; /* it could not send that process a signal */
	pid = impostor("impostor");
	ck_assert_uint_eq(sweep("impostor"), 0);
	ck_assert_int_eq(waitpid(pid, NULL, WNOHANG), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

/* `cleared` says what all processes of the job used.  The cgroup is gone by then: after
 * it nobody sweeps the host, though the agent may be killed next. */
START_TEST(cgroup_counts)
{
	const char *script =
		"d=$(sed -n 's/^0::\\(.*\\/berth-.*\\)/\\1/p' /proc/self/cgroup); "
		"m=$(sed -n 's/.* \\([^ ]*\\) rw.* - cgroup2 .*/\\1/p' "
		"/proc/self/mountinfo); "
		"[ -z \"$d\" ] || printf %s \"$m$d\"; "
		"while [ $(cut -d' ' -f14 /proc/$$/stat) -lt 5 ]; do :; done";
	char *made;

	job(&(struct far_job){ .argv = { SH(script) }, .job_id = "counts" });
	far_until(&far, far.nended == 1);
	made = xstrdup(str_text(&far.rank[0].out[1]));
	ck_assert(!*made || !access(made, F_OK));
	far_end(&far, 0);
	ck_assert_msg(!*made || access(made, F_OK), "%s is left", made);
	ck_assert_uint_eq(far.cpu_us >= 50000, *made != '\0');
	free(made);
	far_close(&far);
	ck_assert_uint_eq(sweep(far_job_id("counts")), 0);
}
END_TEST

/* ---- saved topologies ---- */

static char folder[32];
static char machine[PATH_MAX];

/* tests/machines/mkmachine.py writes the machine; tests run from the top of the tree.
 */
static void make_machine(const char *name)
{
	int status;
	pid_t pid;

	snprintf(folder, sizeof folder, "/tmp/test_ranks_guard.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	pid = fork();
	if (!pid) {
		execlp("python3", "python3", "tests/machines/mkmachine.py", folder,
		       name, (char *)NULL);
		_exit(99);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	snprintf(machine, sizeof machine, "%s/%s.xml", folder, name);
}

static void remove_machine(void)
{
	unlink(machine);
	rmdir(folder);
}

START_TEST(place_on_a_file)
{
	make_machine("two-sockets-8gpu");
	far_open(&far, "--place", machine);
	ck_assert_uint_eq(far.gpus, 8);
	ck_assert_uint_eq(far.port, 0);
	far_start(&far, &(struct far_job){ .argv = { ARGV("true") },
					   .n = 8,
					   .flags = JOB_PLAN,
					   .visible = VISIBLE_NODE });
	ck_assert_str_eq(far.rank[3].visible, "0,1,2,3,4,5,6,7");
	ck_assert_uint_eq(far.rank[3].shared, 0);
	far_until(&far, far.log.len);
	ck_assert_str_eq(str_text(&far.log),
			 "ERROR E_PLACE_ONLY ranks cannot run on a saved topology\n");
	far_end(&far, 0);
	far_close(&far);
	remove_machine();
}
END_TEST

START_TEST(no_such_file)
{
	far_open(&far, "--place", "/no/such/file.xml");
	while (!far.eof)
		far_next(&far);
	ck_assert_msg(strstr(str_text(&far.log), "ERROR E_TOPOLOGY") != NULL, "%s",
		      str_text(&far.log));
	ck_assert_int_eq(far_reap(&far), W_EXITCODE(125, 0));
	far_free(&far);
}
END_TEST

START_TEST(shared_gpus_warn)
{
	make_machine("one-sided-2gpu");
	far_open(&far, "--place", machine);
	far_job(&far, &(struct far_job){
			      .argv = { ARGV("true") }, .n = 4, .flags = JOB_PLAN });
	far_until(&far, far.placed);
	ck_assert_uint_eq(far.rank[0].shared, 1);
	ck_assert_str_eq(str_text(&far.log),
			 "WARNING E_GPU_SHARED 4 ranks share 2 GPUs\n");
	far_end(&far, 0);
	far_close(&far);
	remove_machine();
}
END_TEST

START_TEST(node_needs_a_gpu_each)
{
	make_machine("one-sided-2gpu");
	far_open(&far, "--place", machine);
	far_job(&far, &(struct far_job){ .argv = { ARGV("true") },
					 .n = 3,
					 .visible = VISIBLE_NODE });
	far_until(&far, far.log.len);
	ck_assert_str_eq(str_text(&far.log),
			 "ERROR E_GPU_NODE 3 ranks on 2 GPUs: "
			 "--gpu-visible node needs a GPU for each rank\n");
	ck_assert(!far.placed);
	far_end(&far, 0); /* an error ends nothing by itself */
	far_job(&far, &(struct far_job){ .argv = { ARGV("true") },
					 .n = 2,
					 .visible = VISIBLE_NODE });
	far_until(&far, far.placed);
	far_end(&far, 0);
	far_close(&far);
	remove_machine();
}
END_TEST

/* Two jobs on one machine, which HWLOC_XMLFILE says has two GPUs. */
START_TEST(gpus_of_another_job)
{
	struct far other = { 0 };

	make_machine("one-sided-2gpu");
	setenv("HWLOC_XMLFILE", machine, 1);
	job(&(struct far_job){
		.argv = { SH("echo $CUDA_VISIBLE_DEVICES; sleep 1000") } });
	far_until(&far, far.rank[0].out[1].len);
	far_open(&other, NULL, NULL);
	far_start(&other,
		  &(struct far_job){ .argv = { SH("echo $CUDA_VISIBLE_DEVICES") } });
	far_until(&other, other.nended == 1);
	ck_assert_str_eq(str_text(&far.rank[0].out[1]), "0\n");
	ck_assert_str_eq(str_text(&other.rank[0].out[1]), "1\n");
	ck_assert_str_eq(str_text(&other.log), "");
	far_end(&other, 0);
	/* two ranks now: one GPU is taken */
	far_start(&other, &(struct far_job){ .argv = { ARGV("true") }, .n = 2 });
	far_until(&other, other.nended == 2);
	ck_assert_msg(strstr(str_text(&other.log), "WARNING E_GPU_HELD GPU 0000:") !=
			      NULL,
		      "%s", str_text(&other.log));
	far_end(&other, 0);
	far_close(&other);
	far_end(&far, 0);
	far_close(&far);
	unsetenv("HWLOC_XMLFILE");
	remove_machine();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("guard");
	TCase *t = tcase_create("agent_end");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, an_exit_begins_with_the_liveness_pipe);
	tcase_add_test(t, an_exit_says_what_was_used);
	tcase_add_test(t, an_error_has_the_time_when_it_was_printed);
	tcase_add_test(t, no_error_has_no_time);
	tcase_add_test(t, a_stop_waits_for_an_exit_that_is_near);
	tcase_add_test(t, a_stop_does_not_wait_for_longer);
	tcase_add_test(t, signal_to_main_process);
	tcase_add_test(t, shells_children_get_it_too);
	tcase_add_test(t, grandchildren_are_spared);
	tcase_add_test(t, stop_and_cont_reach_the_tree);
	tcase_add_test(t, term_to_the_agent);
	tcase_add_test(t, end_gives_grace);
	tcase_add_test(t, end_kills_after_grace);
	tcase_add_test(t, second_end_kills_now);
	tcase_add_test(t, stopped_ranks_act_on_end);
	tcase_add_test(t, end_after_the_last);
	tcase_add_test(t, end_of_a_forking_family);
	tcase_add_test(t, launcher_is_lost);
	tcase_add_test(t, start_after_end);
	tcase_add_test(t, launcher_is_silent);
	tcase_add_test(t, bye_during_a_job);
	tcase_add_test(t, agent_is_killed);
	tcase_add_test(t, guardian_is_killed);
	tcase_add_loop_test(t, both_are_killed, 0, 2);
	tcase_add_test(t, sweep_ends_a_stopped_agent);
	tcase_add_test(t, sweep_ignores_another_users_socket);
	tcase_add_test(t, cgroup_counts);
	tcase_add_test(t, place_on_a_file);
	tcase_add_test(t, no_such_file);
	tcase_add_test(t, shared_gpus_warn);
	tcase_add_test(t, node_needs_a_gpu_each);
	tcase_add_test(t, gpus_of_another_job);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
