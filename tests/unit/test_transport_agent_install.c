/* The ssh_config and known_hosts reader, and the state machine that brings an agent up.
 */
#include <check.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire.h"
#include "launcher/transport/agent_install.h"
#include "tests/unit/ssh_config_free.h"

static char dir[] = "/tmp/berth-install.XXXXXX";

static void put(const char *name, const char *text)
{
	char *path = xasprintf("%s/%s", dir, name);
	FILE *f = fopen(path, "we");

	if (!f || fputs(text, f) < 0 || fclose(f))
		abort();
	free(path);
}

static void mode(const char *name, mode_t m)
{
	char *path = xasprintf("%s/%s", dir, name);

	if (chmod(path, m))
		abort();
	free(path);
}

/* ---- ssh_config ---- */

static const struct conf_case {
	const char *own, *shared,
		*known; /* ~/.ssh/config, ssh_config, ~/.ssh/known_hosts */
	const char *name, *user;
	bool agent;
	const char *why; /* a part of the reason; "" for libssh */
	enum ssh_strict strict;
	int family;
} conf_cases[] = {
	{ "", "", "", "n1", NULL, false, "", STRICT_YES, AF_UNSPEC },
	{ "Host n*\n StrictHostKeyChecking accept-new\n", "", "", "n1", NULL, false, "",
	  STRICT_ACCEPT_NEW, AF_UNSPEC },
	{ "Host n* !n1\n StrictHostKeyChecking=no\n", "", "", "n1", NULL, false, "",
	  STRICT_YES, AF_UNSPEC },
	{ "stricthostkeychecking = no\nStrictHostKeyChecking yes\n", "", "", "n1", NULL,
	  false, "", STRICT_NO, AF_UNSPEC },
	{ "", "Host n1\nAddressFamily inet6\n", "", "n1", NULL, false, "", STRICT_YES,
	  AF_INET6 },
	{ "Host other\n", "StrictHostKeyChecking no\n", "", "n1", NULL, false, "",
	  STRICT_NO, AF_UNSPEC },
	{ "Host n1\n CertificateFile ~/c\n", "", "", "n1", NULL, false,
	  "certificatefile (", STRICT_YES, AF_UNSPEC },
	{ "Host n1\n CertificateFile ~/c\n", "", "", "n2", NULL, false, "", STRICT_YES,
	  AF_UNSPEC },
	{ "HostKeyAlias x # why\n", "", "", "n1", NULL, false, "config:1)", STRICT_YES,
	  AF_UNSPEC },
	{ "IdentitiesOnly yes\n", "", "", "n1", NULL, false, "", STRICT_YES,
	  AF_UNSPEC },
	{ "IdentitiesOnly yes\n", "", "", "n1", NULL, true, "identitiesonly",
	  STRICT_YES, AF_UNSPEC },
	{ "IdentitiesOnly no\nIdentitiesOnly yes\n", "", "", "n1", NULL, true, "",
	  STRICT_YES, AF_UNSPEC },
	{ "PreferredAuthentications hostbased,publickey\n", "", "", "n1", NULL, false,
	  "preferred", STRICT_YES, AF_UNSPEC },
	{ "PreferredAuthentications publickey\n", "", "", "n1", NULL, false, "",
	  STRICT_YES, AF_UNSPEC },
	{ "CanonicalizeHostname no\nGSSAPIAuthentication yes\n", "", "", "n1", NULL,
	  false, "", STRICT_YES, AF_UNSPEC },
	{ "CanonicalizeHostname always\n", "", "", "n1", NULL, false,
	  "canonicalizehostname", STRICT_YES, AF_UNSPEC },
	{ "Match user bob\n HostKeyAlias x\n", "", "", "n1", "bob", false,
	  "hostkeyalias", STRICT_YES, AF_UNSPEC },
	{ "Match user bob\n HostKeyAlias x\n", "", "", "n1", "eve", false, "",
	  STRICT_YES, AF_UNSPEC },
	{ "Host n1\n HostName real\nMatch host real\n HostKeyAlias x\n", "", "", "n1",
	  NULL, false, "hostkeyalias", STRICT_YES, AF_UNSPEC },
	{ "Match !host n1\n HostKeyAlias x\n", "", "", "n1", NULL, false, "",
	  STRICT_YES, AF_UNSPEC },
	{ "Match originalhost n1\n Port 7\n", "", "", "n1", NULL, false,
	  "Match originalhost", STRICT_YES, AF_UNSPEC },
	{ "Match originalhost n2\n Port 7\n", "", "", "n1", NULL, false, "", STRICT_YES,
	  AF_UNSPEC },
	{ "Match canonical host n1\n Port 7\n", "", "", "n1", NULL, false,
	  "Match canonical", STRICT_YES, AF_UNSPEC },
	{ "", "Match final all\n GSSAPIAuthentication yes\n", "", "n1", NULL, false, "",
	  STRICT_YES, AF_UNSPEC },
	{ "Match exec \"test -e /x\"\n HostKeyAlias x\n", "", "", "n1", NULL, false,
	  "Match exec (", STRICT_YES, AF_UNSPEC },
	{ "StrictHostKeyChecking off\n", "", "", "n1", NULL, false, "", STRICT_NO,
	  AF_UNSPEC },
	{ "StrictHostKeyChecking perhaps\n", "", "", "n1", NULL, false,
	  "stricthostkeychecking (", STRICT_YES, AF_UNSPEC },
	{ "CheckHostIP yes\n", "", "", "n1", NULL, false, "checkhostip", STRICT_YES,
	  AF_UNSPEC },
	{ "UpdateHostKeys no\n", "", "", "n1", NULL, false, "", STRICT_YES, AF_UNSPEC },
	{ "UserKnownHostsFile ~/.ssh/%h\n", "", "", "n1", NULL, false,
	  "userknownhostsfile '~/.ssh/%h'", STRICT_YES, AF_UNSPEC },
	{ "IdentityFile ~/.ssh/config\n", "", "", "n1", NULL, false, "", STRICT_YES,
	  AF_UNSPEC },
	{ "IdentityFile ~/.ssh/none\nIdentityFile ~/.ssh/open\n", "", "", "n1", NULL,
	  false, "a private key that others may read, '", STRICT_YES, AF_UNSPEC },
	{ "", "", "n2 x\n @revoked * ssh-ed25519 AAAA\n", "n1", NULL, false,
	  "known_hosts:2", STRICT_YES, AF_UNSPEC },
	{ "GlobalKnownHostsFile /dev/null ~/.ssh/known_hosts\n", "",
	  "@revoked n1 ssh-ed25519 AAAA\n", "n1", NULL, false, "@revoked in ",
	  STRICT_YES, AF_UNSPEC },
	{ "Port 7\n", "", "@revoked [n1]:7 ssh-ed25519 AAAA\n", "n1", NULL, false,
	  "@revoked in ", STRICT_YES, AF_UNSPEC },
	{ "Port 7\n", "", "@revoked [n1]:8 ssh-ed25519 AAAA\n", "n1", NULL, false, "",
	  STRICT_YES, AF_UNSPEC },
	{ "Match exec true\n StrictHostKeyChecking no\n", "", "", "n1", NULL, false,
	  "Match exec (", STRICT_YES, AF_UNSPEC },
	{ "Match exec true\nMatch all\n StrictHostKeyChecking no\n", "", "", "n1", NULL,
	  false, "Match exec (", STRICT_NO, AF_UNSPEC },
	{ "Include more/*\n StrictHostKeyChecking no\n", "", "", "n1", NULL, false,
	  "hostkeyalias", STRICT_NO, AF_UNSPEC },
	{ "Host n2\nInclude more/*\n", "", "", "n1", NULL, false, "", STRICT_YES,
	  AF_UNSPEC },
	{ "Include config\n", "", "", "n1", NULL, false,
	  "files that include each other", STRICT_YES, AF_UNSPEC },
	{ "", "", "@revoked * ssh-ed25519 AAAA\n", "n1", NULL, false, "@revoked in ",
	  STRICT_YES, AF_UNSPEC },
	{ "", "", "n1 ssh-ed25519 AAAA\n@cert-authority *.corp ssh-rsa A\n", "n1", NULL,
	  false, "", STRICT_YES, AF_UNSPEC },
	{ "HostName %h.corp\n", "", "@cert-authority *.corp ssh-rsa A\n", "n1", NULL,
	  false, "@cert-authority", STRICT_YES, AF_UNSPEC },
	{ "UserKnownHostsFile /dev/null\n", "", "@revoked * ssh-ed25519 AAAA\n", "n1",
	  NULL, false, "", STRICT_YES, AF_UNSPEC },
};

START_TEST(reads_ssh_config)
{
	const struct conf_case *k = &conf_cases[_i];
	const struct ssh_config_given given = { .user = k->user, .agent = k->agent };
	struct ssh_config c = { 0 };
	struct ssh_config_facts f;

	put(".ssh/config", k->own);
	put(".ssh/more/one", "Host n1\n HostKeyAlias x\n");
	put("etc/ssh_config", k->shared);
	put(".ssh/known_hosts", k->known);
	put(".ssh/open", "");
	mode(".ssh/config", 0600);
	mode(".ssh/open", 0644);
	ssh_config_read(&c, dir, "etc");
	ssh_config_ask(&c, k->name, &given, &f);
	if (*k->why)
		ck_assert_msg(strstr(str_text(&f.why), k->why) != NULL, "'%s'",
			      str_text(&f.why));
	else
		ck_assert_str_eq(str_text(&f.why), "");
	ck_assert_int_eq(f.strict, k->strict);
	ck_assert_int_eq(f.family, k->family);
	ssh_config_facts_free(&f);
	ssh_config_free(&c);
}
END_TEST

/* What FACTS says of n1 after the mode of a file is M. */
static char *why_with_mode(const char *name, mode_t m)
{
	const struct ssh_config_given given = { 0 };
	struct ssh_config c = { 0 };
	struct ssh_config_facts f;
	char *why;

	mode(name, m);
	ssh_config_read(&c, dir, "etc");
	ssh_config_ask(&c, "n1", &given, &f);
	why = xstrdup(str_text(&f.why));
	ssh_config_facts_free(&f);
	ssh_config_free(&c);
	mode(name, 0600);
	return why;
}

START_TEST(asks_for_owners)
{
	static const struct {
		const char *name;
		mode_t mode;
		const char *why;
	} cases[] = {
		{ ".ssh/config", 0644, "" },
		{ ".ssh/config", 0622, "others may write" },
		{ ".ssh/more/one", 0602, "more/one" },
		{ "etc/ssh_config", 0666, "" },
		{ ".ssh/id_rsa", 0600, "" },
		{ ".ssh/id_rsa", 0640, "id_rsa" },
	};

	put(".ssh/config", "Include more/*\n");
	put(".ssh/more/one", "User me\n");
	put("etc/ssh_config", "");
	put(".ssh/known_hosts", "");
	put(".ssh/id_rsa", "");
	mode(".ssh/more/one", 0600);
	mode(".ssh/id_rsa", 0600);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char *why = why_with_mode(cases[i].name, cases[i].mode);

		if (*cases[i].why)
			ck_assert_msg(strstr(why, cases[i].why) != NULL, "%zu: '%s'", i,
				      why);
		else
			ck_assert_str_eq(why, "");
		free(why);
	}
}
END_TEST

/* ---- agent_install ---- */

static char *image_path;
static struct transport_setup setup;

static void hello(struct buf *out, const char *version, uint32_t wire)
{
	struct wire_hello m = { .version = version, .wire = wire, .address = "" };

	buf_add(out, WIRE_MAGIC, WIRE_MAGIC_BYTES);
	wire_pack_hello(out, &m);
}

static enum install_event say(struct agent_install *b, const char *text)
{
	return agent_install_bytes(b, text, strlen(text));
}

static enum install_event greet(struct agent_install *b, const char *version)
{
	struct buf out = { 0 };
	enum install_event got;

	hello(&out, version, WIRE_VERSION);
	got = agent_install_bytes(b, buf_head(&out), out.len);
	buf_free(&out);
	return got;
}

static void drain(struct agent_install *b, size_t *sent)
{
	size_t n;

	*sent = 0;
	while (agent_install_pending(b, &n)) {
		agent_install_sent(b, n);
		*sent += n;
	}
}

static void begin(struct agent_install *b)
{
	setup = (struct transport_setup){ .own_agent = image_path };
	agent_install_init(b, &setup, "u@h:22");
}

static bool ends_with(const char *text, const char *end)
{
	const size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* Words for any login shell: csh has no "!" and no newline in quotes, fish no
 * backslash. */
START_TEST(the_direct_command_is_for_any_shell)
{
	struct agent_install b;
	const char *script, *end;

	begin(&b);
	script = strchr(agent_install_command(&b), '\'') + 1;
	end = strchr(script, '\'');
	ck_assert_uint_gt((size_t)(end - script), 300);
	for (; script < end; script++)
		ck_assert_ptr_null(strchr("!\\\n", *script));
	agent_install_free(&b);
	setup.agent = "agent in PATH";
	agent_install_init(&b, &setup, "h");
	ck_assert_str_eq(agent_install_command(&b), "exec agent\\ in\\ PATH");
	agent_install_free(&b);
}
END_TEST

/* Another user can replace it: the next way, and a note of that. */
START_TEST(unsafe_is_passed_over)
{
	struct wire_frame f;
	struct wire_log m;
	struct agent_install b;

	begin(&b);
	ck_assert_int_eq(say(&b, "\n:berth: unsafe\n"), INSTALL_WAIT);
	ck_assert_int_eq(agent_install_ended(&b, 127, ""), INSTALL_AGAIN);
	ck_assert_int_eq(b.stage, INSTALL_SEARCH);
	ck_assert_int_eq(say(&b, "\n:berth: here\n"), INSTALL_WAIT);
	ck_assert_int_eq(greet(&b, BERTH_VERSION), INSTALL_UP);
	buf_drop(&b.in, WIRE_MAGIC_BYTES);
	buf_drop(&b.in, (size_t)wire_next_from(WIRE_AGENT, &f, buf_head(&b.in),
					       b.in.len, NULL));
	wire_next_from(WIRE_AGENT, &f, buf_head(&b.in), b.in.len, NULL);
	ck_assert_int_eq(wire_unpack_log(&m, f.payload, f.n, NULL), 0);
	ck_assert_str_eq(m.id, "E_AGENT_UNSAFE");
	agent_install_free(&b);
	setup.agent = "/opt/agent";
	agent_install_init(&b, &setup, "h");
	ck_assert_int_eq(say(&b, "\n:berth: unsafe\n"), INSTALL_FAILED);
	ck_assert_int_eq(b.err.id, E_AGENT_UNSAFE);
	agent_install_free(&b);
}
END_TEST

/* The script says whether the login works, and the machine is the agent's. */
START_TEST(a_direct_agent_that_ends)
{
	struct agent_install b;
	size_t n;

	begin(&b);
	ck_assert_int_eq(agent_install_ended(&b, 3, "x\nno disk\n"), INSTALL_AGAIN);
	ck_assert_ptr_nonnull(strstr(agent_install_pending(&b, &n), " k=1 "));
	ck_assert_int_eq(say(&b, "\n:berth: here\n\n:berth: failed\n"), INSTALL_FAILED);
	ck_assert_int_eq(b.err.id, E_AGENT_START);
	ck_assert_ptr_nonnull(strstr(b.err.text, "status 3 before its first message: "
						 "no disk"));
	agent_install_free(&b);
	begin(&b);
	ck_assert_int_eq(agent_install_ended(&b, 127, ""), INSTALL_AGAIN);
	ck_assert_ptr_nonnull(strstr(agent_install_pending(&b, &n), " k=0 "));
	agent_install_free(&b);
}
END_TEST

START_TEST(direct_in_single_bytes)
{
	struct buf out = { 0 };
	struct agent_install b;

	begin(&b);
	ck_assert(strstr(agent_install_command(&b), "' sh -ldn /tmp/") != NULL);
	ck_assert(ends_with(agent_install_command(&b), image_path));
	hello(&out, BERTH_VERSION, WIRE_VERSION);
	for (size_t i = 0; i + 1 < out.len; i++)
		ck_assert_int_eq(agent_install_bytes(&b, buf_head(&out) + i, 1),
				 INSTALL_WAIT);
	ck_assert_int_eq(agent_install_bytes(&b, buf_head(&out) + out.len - 1, 1),
			 INSTALL_UP);
	ck_assert_uint_eq(b.in.len, out.len);
	ck_assert_mem_eq(buf_head(&b.in), buf_head(&out), out.len);
	buf_free(&out);
	agent_install_free(&b);
}
END_TEST

START_TEST(noise_becomes_a_note)
{
	struct wire_frame f;
	struct wire_log m;
	struct agent_install b;
	long n;

	begin(&b);
	ck_assert_int_eq(say(&b, "\n Welcome!\r\nmore\n"), INSTALL_WAIT);
	ck_assert_int_eq(greet(&b, BERTH_VERSION), INSTALL_UP);
	buf_drop(&b.in, WIRE_MAGIC_BYTES);
	n = wire_next_from(WIRE_AGENT, &f, buf_head(&b.in), b.in.len, NULL);
	ck_assert_int_eq(f.type, WIRE_hello);
	buf_drop(&b.in, (size_t)n);
	n = wire_next_from(WIRE_AGENT, &f, buf_head(&b.in), b.in.len, NULL);
	ck_assert_int_eq(wire_unpack_log(&m, f.payload, f.n, NULL), 0);
	ck_assert_str_eq(m.text, "the login there prints 'Welcome!'");
	ck_assert_str_eq(m.id, "E_LOGIN_NOISE");
	ck_assert_uint_eq((size_t)n, b.in.len);
	agent_install_free(&b);
}
END_TEST

START_TEST(missing_is_sent)
{
	struct utsname us;
	struct agent_install b;
	size_t n, script;
	char *need;

	begin(&b);
	ck_assert_int_eq(agent_install_ended(&b, 127, "no such file"), INSTALL_AGAIN);
	ck_assert_int_eq(b.stage, INSTALL_SEARCH);
	drain(&b, &script);
	ck_assert_uint_gt(script, 500);
	uname(&us);
	need = xasprintf("\n:berth: here\n\n:berth: need %s glibc 2.1\n", us.machine);
	ck_assert_int_eq(say(&b, need), INSTALL_WAIT);
	free(need);
	drain(&b, &n);
	ck_assert_uint_eq(n, 9); /* the whole image */
	ck_assert_int_eq(greet(&b, BERTH_VERSION), INSTALL_UP);
	agent_install_free(&b);
}
END_TEST

/* What B sends runs as on a host, whose `uname -n` waits for a line in "go": its input,
 * and its output. */
static pid_t run_there(struct agent_install *b, FILE **in, FILE **out)
{
	int to[2], from[2];
	pid_t child;

	ck_assert_int_eq(pipe(to) | pipe(from), 0);
	child = fork();
	if (!child) {
		char *home = xasprintf("%s/there", dir);
		char *path = xasprintf("%s/bin:/usr/bin:/bin", home);

		setenv("HOME", home, 1);
		setenv("PATH", path, 1);
		dup2(to[0], 0);
		dup2(from[1], 1);
		dup2(open("/dev/null", O_WRONLY), 2);
		closefrom(3);
		execl("/bin/sh", "sh", "-c", agent_install_command(b), (char *)NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	*in = fdopen(to[1], "w");
	*out = fdopen(from[0], "r");
	return child;
}

START_TEST(nothing_is_left_where_the_connection_ends)
{
	static const char uname_that_waits[] =
		"#!/bin/sh\n[ \"$1\" != -n ] || read x < $HOME/go\necho there\n";
	char line[64] = "";
	struct agent_install b;
	FILE *in, *out;
	int status, go;
	const void *data;
	pid_t child;
	size_t n;

	mkdir("there", 0700);
	mkdir("there/bin", 0700);
	put("there/bin/uname", uname_that_waits);
	chmod("there/bin/uname", 0700);
	mkfifo("there/go", 0600);
	begin(&b);
	ck_assert_int_eq(agent_install_ended(&b, 127, "no such file"), INSTALL_AGAIN);
	child = run_there(&b, &in, &out);
	while ((data = agent_install_pending(&b, &n))) {
		fwrite(data, 1, n, in);
		agent_install_sent(&b, n);
	}
	fflush(in);
	while (!strstr(line, "here"))
		ck_assert_ptr_nonnull(fgets(line, sizeof line, out));
	go = open("there/go", O_RDWR | O_CLOEXEC); /* waits for nobody */
	fclose(out);
	ck_assert_int_eq(write(go, "\n", 1), 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(rmdir("there/.cache/berth"), 0); /* it is empty */
	close(go);
	fclose(in);
	agent_install_free(&b);
}
END_TEST

START_TEST(another_version_is_replaced)
{
	struct agent_install b;

	begin(&b);
	ck_assert_int_eq(greet(&b, "9.9"), INSTALL_AGAIN);
	ck_assert_int_eq(b.stage, INSTALL_SEARCH);
	ck_assert_int_eq(say(&b, "\n:berth: here\n"), INSTALL_WAIT);
	ck_assert_int_eq(greet(&b, BERTH_VERSION "x"), INSTALL_AGAIN);
	ck_assert_int_eq(b.stage, INSTALL_SEND);
	ck_assert_int_eq(greet(&b, ""), INSTALL_FAILED);
	ck_assert_int_eq(b.err.id, E_AGENT_OTHER);
	agent_install_free(&b);
}
END_TEST

/* What a failing host says after the direct try, and what becomes of it. */
static const struct fail_case {
	const char *out;
	int status; /* -2: no end */
	const char *said;
	enum err_id id;
	const char *text;
} fail_cases[] = {
	{ "\n:berth: here\n\n:berth: need sparc64 glibc 2.1\n", -2, "", E_AGENT_ARCH,
	  "its machine is sparc64 glibc 2.1" },
	{ "\n:berth: nowhere /a is full\n", -2, "", E_AGENT_NOEXEC, ": /a is full" },
	{ "\n:berth: norun /t: GLIBC_9 not found\n", -2, "", E_AGENT_LIBC,
	  "GLIBC_9 not found" },
	{ "\n:berth: fail it broke\n", -2, "", E_AGENT_SEND, ": it broke" },
	{ "go away\n", 0, "", E_LOGIN_NOISE, "printed 'go away'" },
	{ "not available\n", 1, "", E_LOGIN_SHELL,
	  "status 1 before the agent started: not available" },
	{ "", 1, "x\nno shell\n", E_LOGIN_SHELL, ": no shell" },
	{ "", 0, "", E_LOGIN_SHELL, "it printed nothing" },
};

START_TEST(failures)
{
	const struct fail_case *k = &fail_cases[_i];
	enum install_event got;
	struct agent_install b;

	begin(&b);
	ck_assert_int_eq(agent_install_ended(&b, 127, ""), INSTALL_AGAIN);
	got = say(&b, k->out);
	if (k->status != -2)
		got = agent_install_ended(&b, k->status, k->said);
	ck_assert_int_eq(got, INSTALL_FAILED);
	ck_assert_int_eq(b.err.id, k->id);
	ck_assert_msg(strstr(b.err.text, k->text) != NULL, "%s", b.err.text);
	ck_assert_int_eq(strncmp(b.err.text, "u@h:22: ", 8), 0);
	agent_install_free(&b);
}
END_TEST

START_TEST(endless_noise_stops)
{
	static char noise[8192];
	enum install_event got = INSTALL_WAIT;
	struct agent_install b;
	int i;

	begin(&b);
	memset(noise, 'y', sizeof noise);
	for (i = 0; got == INSTALL_WAIT && i < 100; i++)
		got = agent_install_bytes(&b, noise, sizeof noise);
	ck_assert_int_eq(got, INSTALL_FAILED);
	ck_assert_int_eq(b.err.id, E_LOGIN_NOISE);
	ck_assert_int_lt(i, 10);
	agent_install_free(&b);
}
END_TEST

START_TEST(launch_agent_only)
{
	struct agent_install b;

	begin(&b);
	agent_install_free(&b);
	setup.agent = "~/my agent's";
	agent_install_init(&b, &setup, "h");
	ck_assert(ends_with(agent_install_command(&b), "' sh -ldnL ~/my\\ agent\\'s"));
	ck_assert_int_eq(agent_install_ended(&b, 126, ""), INSTALL_FAILED);
	ck_assert_int_eq(b.err.id, E_AGENT_MISSING);
	agent_install_free(&b);
}
END_TEST

START_TEST(late)
{
	struct agent_install b;

	begin(&b);
	agent_install_late(&b);
	ck_assert_int_eq(b.err.id, E_START_TIMEOUT);
	ck_assert_int_eq(say(&b, "Project? "), INSTALL_WAIT);
	agent_install_late(&b);
	ck_assert_int_eq(b.err.id, E_LOGIN_NOISE);
	agent_install_free(&b);
}
END_TEST

/* Our own script's line is nothing that a login printed. */
START_TEST(late_while_the_agent_is_looked_for)
{
	struct agent_install b;

	begin(&b);
	ck_assert_int_eq(agent_install_ended(&b, 127, ""), INSTALL_AGAIN);
	ck_assert_int_eq(say(&b, "\n:berth: here\n"), INSTALL_WAIT);
	agent_install_late(&b);
	ck_assert_int_eq(b.err.id, E_START_TIMEOUT);
	ck_assert(strstr(b.err.text, "the agent there was starting"));
	agent_install_free(&b);
}
END_TEST

static void clean(void)
{
	static const char *const files[] = { ".ssh/config",   ".ssh/known_hosts",
					     ".ssh/open",     ".ssh/id_rsa",
					     ".ssh/more/one", "etc/ssh_config",
					     "agent",         "there/bin/uname",
					     "there/go" };
	static const char *const folders[] = {
		"there/.cache/berth", "there/.cache", "there/bin", "there",
		".ssh/more",          ".ssh",         "etc",       dir
	};

	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		unlink(files[i]);
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
		rmdir(folders[i]);
}

int main(void)
{
	TCase *conf = tcase_create("ssh_config"), *install = tcase_create("install");
	Suite *s = suite_create("install");
	SRunner *r = srunner_create(s);
	int failed;

	if (!mkdtemp(dir) || chdir(dir) || mkdir(".ssh", 0700) ||
	    mkdir(".ssh/more", 0700) || mkdir("etc", 0700))
		return 1;
	image_path = xasprintf("%s/agent", dir);
	put("agent", "#!an exe\n");
	tcase_add_loop_test(conf, reads_ssh_config, 0,
			    sizeof conf_cases / sizeof *conf_cases);
	tcase_add_test(install, the_direct_command_is_for_any_shell);
	tcase_add_test(install, unsafe_is_passed_over);
	tcase_add_test(install, a_direct_agent_that_ends);
	tcase_add_test(conf, asks_for_owners);
	tcase_add_test(install, direct_in_single_bytes);
	tcase_add_test(install, noise_becomes_a_note);
	tcase_add_test(install, missing_is_sent);
	tcase_add_test(install, nothing_is_left_where_the_connection_ends);
	tcase_add_test(install, another_version_is_replaced);
	tcase_add_loop_test(install, failures, 0,
			    sizeof fail_cases / sizeof *fail_cases);
	tcase_add_test(install, endless_noise_stops);
	tcase_add_test(install, launch_agent_only);
	tcase_add_test(install, late);
	tcase_add_test(install, late_while_the_agent_is_looked_for);
	suite_add_tcase(s, conf);
	suite_add_tcase(s, install);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	clean();
	free(image_path);
	return failed != 0;
}
