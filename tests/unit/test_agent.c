/* berth-agent from the launcher's end of its stream: hello, jobs, exec, output, input.
 */
#include "far.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static struct far far;

static void job(const struct far_job *j)
{
	far_open(&far, NULL, NULL);
	far_start(&far, j);
}

/* Wait for all N ranks, then end the job and let the agent go. */
static void finish(size_t n)
{
	far_until(&far, far.nended == n);
	FAR_SEND(&far, stop, far.epoch, 1000);
	far_until(&far, far.gone);
	ck_assert_uint_eq(far.unkillable, 0);
}

/* ---- hello ---- */

static bool can_bind(uint32_t port, bool reuse, bool listens)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = reuse;
	const struct sockaddr_in a = { .sin_family = AF_INET,
				       .sin_port = htons((uint16_t)port) };
	bool can;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	can = !bind(fd, (const struct sockaddr *)&a, sizeof a) &&
	      (!listens || !listen(fd, 1));
	close(fd);
	return can;
}

START_TEST(hello)
{
	far_open(&far, NULL, NULL);
	ck_assert_uint_ge(far.cpus, 1);
	ck_assert_uint_ge(far.cores, 1);
	ck_assert_uint_ge(far.port, 20000);
	ck_assert_uint_le(far.port, 29499);
	ck_assert(!can_bind(far.port, false, false)); /* others find it taken */
	ck_assert(can_bind(far.port, true, true));    /* TCPStore may listen */
	far_sync(&far);
	ck_assert_uint_eq(far.echo_ns, 7);
	far_close(&far);
}
END_TEST

START_TEST(port_of_another_host_is_given_up)
{
	uint32_t port;

	far_open(&far, NULL, NULL);
	port = far.port;
	far_start(&far, &(struct far_job){ .argv = { ARGV("true") }, .port = 1 });
	ck_assert(can_bind(port, false, false)); /* the next job's may be the same */
	finish(1);
	far_close(&far);
}
END_TEST

/* A process of user UID that listens on PORT, as a TCPStore would. */
static pid_t listener(uint32_t port, uid_t uid)
{
	const struct sockaddr_in a = { .sin_family = AF_INET,
				       .sin_port = htons((uint16_t)port) };
	int up[2], on = 1;
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(up), 0);
	pid = fork();
	if (!pid) {
		int fd, failed = setresuid(uid, uid, uid);

		fd = socket(AF_INET, SOCK_STREAM, 0); /* that user's */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
		if (failed || bind(fd, (const struct sockaddr *)&a, sizeof a) ||
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

/* Rank 0 alone is told, and only if it failed. */
START_TEST(port_is_taken)
{
	const uid_t uid = geteuid() ? geteuid() : 65534;
	const char *script = "read; exit $((RANK == 0 ? 3 : 4))";
	char wanted[128], who[64] = "", fds[64];
	pid_t pid;

	job(&(struct far_job){ .argv = { SH(script) }, .n = 2, .stdin_all = true });
	pid = listener(far.port, uid);
	snprintf(fds, sizeof fds, "/proc/%d/fd/0", pid);
	if (!access(fds, F_OK)) /* without CAP_SYS_PTRACE only a process of ours */
		snprintf(who, sizeof who, ", pid %d (test_agent)", pid);
	FAR_SEND(&far, input, far.epoch, { "\n", 1 });
	finish(2);
	snprintf(wanted, sizeof wanted, "MASTER_PORT: uid %u%s listens on %u", uid, who,
		 far.port);
	ck_assert_msg(strstr(far.rank[0].hint, wanted) != NULL, "%s", far.rank[0].hint);
	ck_assert_str_eq(far.rank[1].hint, "");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	far_close(&far);
}
END_TEST

/* What the job itself has there is no reason. */
START_TEST(port_is_the_jobs_own)
{
	const char *script = "exec 3< <(python3 -c '\n"
			     "import os, socket, sys, time\n"
			     "s = socket.socket()\n"
			     "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
			     "s.bind((\"\", int(os.environ[\"MASTER_PORT\"])))\n"
			     "s.listen()\n"
			     "print(\"up\", flush=True)\n"
			     "time.sleep(1000)'); read -u 3; exit 3";

	job(&(struct far_job){ .argv = { SH(script) } });
	finish(1);
	ck_assert_int_eq((int)far.rank[0].status, 3 << 8);
	ck_assert_str_eq(far.rank[0].hint, "");
	far_close(&far);
}
END_TEST

START_TEST(address_is_where_ssh_came_in)
{
	setenv("SSH_CONNECTION", "10.0.0.1 50022 10.0.0.2 22", 1);
	far_open(&far, NULL, NULL);
	unsetenv("SSH_CONNECTION");
	ck_assert_str_eq(far.address, "10.0.0.2");
	far_close(&far);
}
END_TEST

/* ---- how ranks end ---- */

static const struct {
	const char *script;
	int status;
} ends[] = {
	{ "exit 0", W_EXITCODE(0, 0) },
	{ "exit 3", W_EXITCODE(3, 0) },
	{ "exit 255", W_EXITCODE(255, 0) },
	{ "kill -KILL $$", W_EXITCODE(0, SIGKILL) },
	{ "kill -TERM $$", W_EXITCODE(0, SIGTERM) },
	{ "kill -PIPE $$",
	  W_EXITCODE(0, SIGPIPE) }, /* not ignored, though the agent does */
	{ "kill -HUP $$", W_EXITCODE(0, SIGHUP) },
	{ "kill -INT $$", W_EXITCODE(0, SIGINT) },
	{ "kill -USR1 $$", W_EXITCODE(0, SIGUSR1) },
};

START_TEST(endings)
{
	job(&(struct far_job){ .argv = { SH(ends[_i].script) } });
	finish(1);
	ck_assert_int_eq((int)far.rank[0].status, ends[_i].status);
	ck_assert_uint_eq(far.rank[0].ended_pid, far.rank[0].pid);
	ck_assert_uint_gt(far.rank[0].began_ns, far.start_ns);
	ck_assert_uint_eq(far.rank[0].oom, 0);
	ck_assert_str_eq(far.rank[0].text, "");
	far_close(&far);
}
END_TEST

START_TEST(many_ranks)
{
	job(&(struct far_job){ .argv = { SH("echo $RANK; exit $((RANK % 7))") },
			       .n = 64 });
	finish(64);
	for (int i = 0; i < 64; i++) {
		char want[16];

		snprintf(want, sizeof want, "%d\n", i);
		ck_assert_str_eq(str_text(&far.rank[i].out[1]), want);
		ck_assert_uint_eq(far.rank[i].out_at_end, strlen(want));
		ck_assert_int_eq((int)far.rank[i].status, W_EXITCODE(i % 7, 0));
	}
	far_close(&far);
}
END_TEST

START_TEST(bound_as_placed)
{
	job(&(struct far_job){ .argv = { ARGV("true") }, .n = 4 });
	finish(4);
	for (int i = 0; i < 4; i++)
		ck_assert_str_eq(far.rank[i].cpus, far.rank[i].berth_cpus);
	far_close(&far);
}
END_TEST

/* From here on nobody that we start may bind, as in some containers. */
static void forbid_binding(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

START_TEST(binding_is_forbidden)
{
	far.prepare = forbid_binding;
	job(&(struct far_job){ .argv = { ARGV("true") }, .n = 3 });
	finish(3);
	ck_assert_str_eq(str_text(&far.log),
			 "WARNING E_BIND cannot bind ranks to CPUs: "
			 "Operation not permitted; they run unbound\n");
	ck_assert_int_eq((int)far.rank[2].status, 0);
	far_close(&far);
}
END_TEST

START_TEST(limits_umask_folder)
{
	const char *script =
		"umask; ulimit -Sn; ulimit -Sc; pwd; ls /proc/self/fd | wc -l; "
		"ps -o pgid= -p $$ | tr -d ' '; echo $$";
	char want[64];

	job(&(struct far_job){
		.argv = { SH(script) }, .wdir = "/usr", .nofile = 77, .umask = 027 });
	finish(1);
	/* ls itself has its folder open, beside 0, 1, 2 and the liveness pipe; a
	 * rank leads its process group */
	snprintf(want, sizeof want, "0027\n77\n0\n/usr\n5\n%u\n%u\n", far.rank[0].pid,
		 far.rank[0].pid);
	ck_assert_str_eq(str_text(&far.rank[0].out[1]), want);
	far_close(&far);
}
END_TEST

START_TEST(environment)
{
	const char *const env[] = {
		"PATH=/usr/bin:/bin",     "FORWARDED=1",     "RANK=9",
		"TMPDIR=/no/such/folder", "NCCL_DEBUG=INFO", NULL
	};
	const char *const given[] = { "FORWARDED=2", "MASTER_ADDR=me", "WORLD_SIZE=9",
				      NULL };
	const char *script =
		"echo $FORWARDED $RANK $WORLD_SIZE $MASTER_ADDR ${TMPDIR-none} "
		"$NCCL_DEBUG $BERTH_JOB $PWD ${PMI_RANK-none} $KEPT";

	setenv("PMI_RANK", "3", 1);
	setenv("KEPT", "mine", 1);
	unsetenv("TMPDIR");
	job(&(struct far_job){
		.argv = { SH(script) }, .env = env, .app_env = given, .wdir = "/usr" });
	unsetenv("PMI_RANK");
	unsetenv("KEPT");
	finish(1);
	ck_assert_str_eq(str_text(&far.rank[0].out[1]),
			 "2 0 1 me none INFO job_id /usr none mine\n");
	far_close(&far);
}
END_TEST

/* ---- what can't be started ---- */

static char folder[32];

static void write_file(const char *name, const char *text, size_t n, mode_t mode)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_eq(write(fd, text, n), (ssize_t)n);
	fchmod(fd, mode);
	close(fd);
}

#define FILE(name, text, mode) write_file(name, text, sizeof text - 1, mode)

static void make_files(void)
{
	snprintf(folder, sizeof folder, "/tmp/test_agent.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	FILE("plain", "true\n", 0600);
	FILE("train.py", "print()\n", 0600);
	FILE("beside", "true\n", 0700);
	FILE("script", "echo shell $1\n", 0700);
	FILE("bang", "#!/bin/sh\necho bang $1\n", 0700);
	FILE("nobang", "#!/no/such/interpreter\n", 0700);
	FILE("dos", "#!/bin/sh\r\necho\r\n", 0700);
	FILE("binary", "\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\2\0\377\0", 0700);
	FILE("zeros", "\0\0\0\0", 0700);
}

static void remove_files(void)
{
	static const char *const names[] = { "plain",  "script", "bang",  "nobang",
					     "dos",    "binary", "zeros", "train.py",
					     "beside", NULL };
	char path[PATH_MAX];

	for (int i = 0; names[i]; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		unlink(path);
	}
	rmdir(folder);
}

static const struct {
	const char *program;
	int code;
	const char *text, *hint; /* parts */
} failures[] = {
	{ "no-such-program", 127, "there is no program 'no-such-program'", "PATH" },
	{ "./no-such-program", 127, "'./no-such-program'", "path" },
	{ "/no/such/program", 127, "'/no/such/program'", "path" },
	{ "", 127, "''", "path" },
	{ "/etc/passwd/x", 127, "'/etc/passwd/x'", "path" },
	{ "./plain", 126, "cannot execute './plain': Permission", "chmod" },
	{ "plain", 126, "cannot execute 'plain': Permission", "chmod" },
	{ "/", 126, "cannot execute '/'", "" },
	{ "./nobang", 126, "its interpreter is not there", "/no/such/interpreter" },
	{ "./dos", 126, "its interpreter is not there", "carriage return" },
	{ "./binary", 126, "not a program for this kind of machine", "" },
	{ "./zeros", 126, "not a program for this kind of machine", "" },
	/* what the user may have meant */
	{ "train.py", 127, "'train.py'", "./train.py or python train.py" },
	{ "beside", 127, "'beside'", "write ./beside" },
	{ "true x", 127, "'true x'", "drop the quotes: true x" },
	{ "./plain x", 127, "'./plain x'", "drop the quotes: ./plain x" },
	{ "A=1", 127, "'A=1'", "-x A=1" },
	{ "A_1=/b", 127, "'A_1=/b'", "-x A_1=/b" },
	{ "=1", 127, "'=1'", "PATH" },
	{ "My_Token=x", 127, "'My_Token=<redacted, 1 byte>'",
	  "-x My_Token=<redacted, 1 byte>" },
};

START_TEST(cannot_start)
{
	char path[PATH_MAX + 32];
	const char *const env[] = { path, NULL };
	const struct far_rank *r = &far.rank[0];

	make_files();
	/* the folder is in PATH if the program is to be found and not to be run */
	snprintf(path, sizeof path, "PATH=/usr/bin:%s",
		 !strcmp(failures[_i].program, "plain") ? folder : "/no/such");
	job(&(struct far_job){ .argv = { ARGV(failures[_i].program), ARGV("true") },
			       .wdir = folder,
			       .env = env });
	finish(2);
	ck_assert_int_eq((int)r->status, W_EXITCODE(failures[_i].code, 0));
	ck_assert_uint_eq(r->ended_pid, 0);
	ck_assert(!r->started);
	ck_assert_msg(strstr(r->text, failures[_i].text) != NULL, "%s", r->text);
	ck_assert_msg(strstr(r->hint, failures[_i].hint) != NULL, "%s", r->hint);
	ck_assert_int_eq((int)far.rank[1].status, 0); /* the other app runs */
	far_close(&far);
	remove_files();
}
END_TEST

/* `placed` says it before a start, of the first rank whose program cannot run. */
START_TEST(placement_finds_the_programs)
{
	make_files();
	job(&(struct far_job){
		.argv = { ARGV("true"), ARGV("./plain") }, .wdir = folder, .n = 4 });
	ck_assert_str_eq(far.cannot_id, "E_NOT_EXECUTABLE");
	ck_assert_str_eq(far.cannot_text,
			 "cannot execute './plain': Permission denied");
	ck_assert_uint_eq(far.cannot_rank, 1);
	far_close(&far);
	job(&(struct far_job){ .argv = { ARGV("true"), ARGV("./script") },
			       .wdir = folder });
	ck_assert_str_eq(far.cannot_id, "");
	finish(2);
	far_close(&far);
	remove_files();
}
END_TEST

/* One line has room for some folders of PATH. */
START_TEST(a_long_path)
{
	struct str path = { 0 }, hint = { 0 };
	const char *env[] = { NULL, NULL };

	str_add(&path, "PATH=");
	for (int i = 0; i < 30; i++)
		str_addf(&path, "%s/folder%02d", i ? ":" : "", i);
	str_add(&hint, "no folder of PATH has it: ");
	for (int i = 0; i < 6; i++)
		str_addf(&hint, "%s/folder%02d", i ? ":" : "", i);
	env[0] = str_text(&path);
	job(&(struct far_job){ .argv = { ARGV("no-such") }, .env = env });
	finish(1);
	str_add(&hint, " and 24 more");
	ck_assert_str_eq(far.rank[0].hint, str_text(&hint));
	far_close(&far);
	str_free(&path);
	str_free(&hint);
}
END_TEST

START_TEST(no_such_folder)
{
	job(&(struct far_job){ .argv = { ARGV("true") }, .wdir = "/no/such", .n = 2 });
	finish(2);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq((int)far.rank[i].status, W_EXITCODE(126, 0));
		ck_assert_str_eq(far.rank[i].text,
				 "cannot run in directory '/no/such': No such file or "
				 "directory");
	}
	far_close(&far);
}
END_TEST

START_TEST(cannot_spawn)
{
	/* One argument longer than the kernel takes (128 KiB). */
	char *argument = xmalloc(200001);

	memset(argument, 'x', 200000);
	argument[200000] = '\0';
	job(&(struct far_job){ .argv = { ARGV("true", argument) } });
	finish(1);
	ck_assert_int_eq((int)far.rank[0].status, W_EXITCODE(125, 0));
	ck_assert_str_eq(far.rank[0].text,
			 "cannot start 'true': Argument list too long");
	far_close(&far);
	free(argument);
}
END_TEST

static void few_descriptors(void)
{
	const struct rlimit l = { 24, 24 };

	setrlimit(RLIMIT_NOFILE, &l);
}

START_TEST(too_few_descriptors)
{
	far.prepare = few_descriptors;
	job(&(struct far_job){ .argv = { ARGV("true") }, .n = 20 });
	finish(20);
	ck_assert_int_eq((int)far.rank[0].status, 0);
	ck_assert_int_eq((int)far.rank[19].status, W_EXITCODE(125, 0));
	ck_assert_str_eq(far.rank[19].text, "a pipe for a rank: Too many open files");
	far_close(&far);
}
END_TEST

START_TEST(scripts)
{
	char path[PATH_MAX + 32];
	const char *const env[] = { path, NULL };

	make_files();
	snprintf(path, sizeof path, "PATH=.:/usr/bin");
	job(&(struct far_job){ .argv = { ARGV("./script", "one"), ARGV("script", "two"),
					 ARGV("./bang", "three"),
					 ARGV("./script", "four") },
			       .wdir = folder,
			       .env = env });
	finish(4);
	ck_assert_str_eq(str_text(&far.rank[0].out[1]), "shell one\n");
	ck_assert_str_eq(str_text(&far.rank[1].out[1]), "shell two\n");
	ck_assert_str_eq(str_text(&far.rank[2].out[1]), "bang three\n");
	ck_assert_str_eq(str_text(&far.rank[3].out[1]), "shell four\n");
	far_close(&far);
	remove_files();
}
END_TEST

/* ---- the stream itself ---- */

START_TEST(two_epochs)
{
	job(&(struct far_job){ .argv = { SH("echo $TORCHELASTIC_RESTART_COUNT") } });
	finish(1);
	ck_assert_str_eq(str_text(&far.rank[0].out[1]), "0\n");
	far_start(&far,
		  &(struct far_job){ .argv = { SH("echo $TORCHELASTIC_RESTART_COUNT") },
				     .n = 2 });
	FAR_SEND(&far, stop, 1, 0); /* of the past: dropped */
	FAR_SEND(&far, credit, 1, 5);
	finish(2);
	ck_assert_str_eq(str_text(&far.rank[1].out[1]), "1\n");
	far_close(&far);
}
END_TEST

START_TEST(end_before_start)
{
	far_open(&far, NULL, NULL);
	far_job(&far, &(struct far_job){ .argv = { ARGV("true") } });
	far_until(&far, far.placed);
	far_end(&far, 10000);
	ck_assert_uint_eq(far.nended, 0);
	far_close(&far);
}
END_TEST

START_TEST(bad_frame)
{
	struct buf b = { 0 };

	job(&(struct far_job){ .argv = { ARGV("sleep", "1000") } });
	far_until(&far, far.rank[0].started);
	buf_add(&b, "\377\377\377\377\1", 5);
	far_send(&far, &b);
	while (!far.eof)
		far_next(&far);
	ck_assert_msg(strstr(str_text(&far.log), "ERROR E_WIRE") != NULL, "%s",
		      str_text(&far.log));
	ck_assert_int_eq(far_reap(&far), W_EXITCODE(125, 0));
	far_free(&far);
}
END_TEST

START_TEST(job_that_does_not_add_up)
{
	uint32_t v[2] = { 0, 1 };

	far_open(&far, NULL, NULL);
	FAR_SEND(&far, app, 0, far_list(ARGV("true")), { NULL, 0 }, "/", { NULL, 0 },
		 "");
	FAR_SEND(&far, job, .epoch = 1, .job_id = "c", .np = 2, .ranks = { v, 2 },
		 .apps = { v, 2 }, .cross_ranks = { v, 2 }, .cross_sizes = { v, 1 });
	while (!far.eof)
		far_next(&far);
	ck_assert_str_eq(str_text(&far.log), "ERROR E_WIRE the agent's stream is not "
					     "valid: malformed 'job' message\n");
	far_reap(&far);
	far_free(&far);
}
END_TEST

START_TEST(nobody_to_talk_to)
{
	char path[PATH_MAX];
	pid_t pid;
	int status;

	far_agent_path(path, sizeof path);
	pid = fork();
	if (!pid) {
		int null = open("/dev/null", O_RDWR);

		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
		execl(path, "berth-agent", (char *)NULL);
		_exit(99);
	}
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, W_EXITCODE(2, 0));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agent");
	TCase *t = tcase_create("agent");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, hello);
	tcase_add_test(t, port_of_another_host_is_given_up);
	tcase_add_test(t, port_is_taken);
	tcase_add_test(t, port_is_the_jobs_own);
	tcase_add_test(t, address_is_where_ssh_came_in);
	tcase_add_loop_test(t, endings, 0, sizeof ends / sizeof *ends);
	tcase_add_test(t, many_ranks);
	tcase_add_test(t, bound_as_placed);
	tcase_add_test(t, binding_is_forbidden);
	tcase_add_test(t, limits_umask_folder);
	tcase_add_test(t, environment);
	tcase_add_loop_test(t, cannot_start, 0, sizeof failures / sizeof *failures);
	tcase_add_test(t, placement_finds_the_programs);
	tcase_add_test(t, a_long_path);
	tcase_add_test(t, no_such_folder);
	tcase_add_test(t, cannot_spawn);
	tcase_add_test(t, too_few_descriptors);
	tcase_add_test(t, scripts);
	tcase_add_test(t, two_epochs);
	tcase_add_test(t, end_before_start);
	tcase_add_test(t, bad_frame);
	tcase_add_test(t, job_that_does_not_add_up);
	tcase_add_test(t, nobody_to_talk_to);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
