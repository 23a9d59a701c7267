/* test_cli_config.c - variables and config files to requests, and the order of all
 * sources.
 * */
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/cli/config.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/variables.h"
#include "tests/unit/request_text.h"

/* ---- variables ---- */

#define TIME_HINT " | write seconds, or a number with s, m, h or d: 90, 5m, 1h"
#define UNSET_A                                                                        \
	" | warning: --export A: the variable is not set here\nhint: give it a "       \
	"value: "                                                                      \
	"-x A=VALUE"
#define HOSTS_HINT " | give only one of -H, --hostfile and --rankfile"

#define UNKNOWN(name, near)                                                            \
	" | warning: unknown variable 'BERTH_" name                                    \
	"'\nhint: did you mean BERTH_" near "?"

static const struct {
	const char *env, *line, *want;
} variables[] = {
	{ "BERTH_NP=4 BERTH_HOSTS=h:2", "a",
	  " hosts=h:2 from=BERTH_HOSTS np=4 npfrom=BERTH_NP [a]" },
	{ "BERTH_NP=4", "-np 2 a", " np=2 [a]" },
	{ "BERTH_CHECK=1 BERTH_SUMMARY=text", "a", " check=1 summary=1 [a]" },
	{ "BERTH_NP=", "a", " [a]" },
	{ "BERTH_NP=4", "a : -np 1 b", " [a] np=1 [b]" },
	{ "BERTH_WDIR=/w", "--wdir /v a : b", " wdir=/v [a] wdir=/w [b]" },
	{ "BERTH_HOSTFILE=f", "-H h a", " hosts=h from=-H [a]" },
	{ "BERTH_HOSTS=h", "--hostfile f a", " hostfile=f from=--hostfile [a]" },
	{ "BERTH_HOSTS=h BERTH_HOSTFILE=f", "a",
	  " error 'BERTH_HOSTFILE' cannot follow another option that names "
	  "hosts" HOSTS_HINT },
	{ "BERTH_OVERSUBSCRIBE=1 BERTH_TAG=no BERTH_VERBOSE=2", "a",
	  " oversubscribe=1 tag=2 verbosity=2 [a]" },
	{ "BERTH_OVERSUBSCRIBE=1", "--no-oversubscribe a", " [a]" },
	{ "BERTH_SHOW=1,2", "--show 3 a", " show=3 [a]" },
	{ "BERTH_TIMEOUT=5y", "a",
	  " error BERTH_TIMEOUT: '5y' is not a time from 0 to 2592000 "
	  "seconds" TIME_HINT },
	{ "BERTH_EXPORT=A=1", "-x A=2 a", " all=A=1 x=A=2 [a]" },
	{ "BERTH_CONFIG_FILE=/nonexistent/x", "a",
	  " error cannot read config file '/nonexistent/x': No such file or "
	  "directory" },
	/* what ranks get, or what nobody knows, is no option */
	{ "BERTH_JOB=1 BERTH_RANK=2 BERTH_AGENT=@x BERTH_NONSENSE=y RUNNER_NP=3", "a",
	  " [a]" },
	/* names that are mistyped; a user's own */
	{ "BERTH_NPX=3", "a", " [a]" UNKNOWN("NPX", "NP") },
	{ "BERTH_NPX=3 BERTH_HSOTS=h:2 BERTH_PN=", "a",
	  " [a]" UNKNOWN("NPX", "NP") UNKNOWN("HSOTS", "HOSTS") },
	{ "BERTH_NET_SECUER=aead", "a", " [a]" UNKNOWN("NET_SECUER", "NET_SECURE") },
	{ "BERTH_PMIX_LIB=x", "a", " [a]" },
	{ "BERTH_PMIXLIBRARY=x BERTH_LIBARY=y", "a",
	  " [a]" UNKNOWN("PMIXLIBRARY", "PMIX_LIBRARY") UNKNOWN("LIBARY", "LIBRARY") },
	{ "BERTH_SHARED=home", "a", " [a]" UNKNOWN("SHARED", "SHARE") },
	/* near to what ranks are given, which nobody sets */
	{ "BERTH_NODE=1 BERTH_JOBS=2 BERTH_RANKS=3", "a", " [a]" },
	{ "BERTH_FOO=1 BERTH_=2 BERTH=3 BERTH_NPXYZ=4 xBERTH_NPX=5", "a", " [a]" },
	{ "BERTH_NP=x", "--version", " printed runner " BERTH_VERSION "\n" },
};

START_TEST(test_variable)
{
	char *got = read_with(NULL, variables[_i].line, variables[_i].env);

	ck_assert_msg(!strcmp(got, variables[_i].want), "%s %s:\n%s\n%s",
		      variables[_i].env, variables[_i].line, got, variables[_i].want);
	free(got);
}
END_TEST

/* No name of the tables is unknown, as runner may be started by a rank. */
START_TEST(known_variables)
{
	static const char *const rest[] = {
#define VARIABLE(name) name,
#define PARAM(name, ...) #name,
#define IGNORED(name, why) #name,
#define GIVEN(name, ...) name,
#include "common/given.def"
#include "launcher/cli/variables.def"
#include "lib/core/params.def"
	};
	struct strv env = { 0 }, notes = { 0 };
	const char *const *names;
	size_t n;

	names = options_env_names(&n);
	for (size_t i = 0; i < n; i++)
		strv_take(&env, xasprintf("%s=1", names[i]));
	for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
		strv_take(&env, xasprintf("%s=1", rest[i]));
	variables_warn(&notes, env.v);
	ck_assert_msg(!notes.n, "%s", notes.n ? notes.v[0] : "");
	strv_free(&env);
}
END_TEST

/* The blanks that part the entries of BERTH_EXPORT. */
START_TEST(variable_list)
{
	char *env[] = { "BERTH_EXPORT= A  NCCL_* B=1", NULL };
	char *argv[] = { "runner", "a", NULL };
	struct strv notes = { 0 };
	struct str print = { 0 };
	struct request r;
	struct err e = { 0 };

	ck_assert_int_eq(options_read(&r, &notes, &print, NULL, 2, argv, env, &e),
			 OPTIONS_RUN);
	ck_assert_uint_eq(r.env.export.n, 3);
	ck_assert_str_eq(r.env.export.v[1], "NCCL_*");
	strv_free(&notes);
	options_free(&r);
}
END_TEST

/* ---- config files ---- */

static const struct {
	const char *text, *want;
} configs[] = {
	{ "", " [a]" },
	{ "# a comment\n\n  np = 4   # four\n\thosts=h:4\r\n",
	  " hosts=h:4 from=hosts in F:4 np=4 npfrom=np in F:3 [a]" },
	{ "bind_to = core:2\ntag = no\nverbose = 1",
	  " tag=2 bind=core count=2 verbosity=1 [a]" },
	{ "export = A=1 2 #3\nexport = NCCL_*\n", " all=A=1 2 all=NCCL_* [a]" },
	{ "export = A=#1\n", " all=A=#1 [a]" },
	{ "no-push = yes\nkeep-going = true\npty = off", " nopush=1 keepgoing=1 [a]" },
	{ "map-by = ppr:2:node\n", " ppn=2 [a]" },
	{ "\nhostt = 3\n", " error F:2: unknown key 'hostt' | did you mean 'hosts'?" },
	{ "config-file = x\n",
	  " error F:1: unknown key 'config-file' | use the "
	  "long name of an option; `runner --help all` lists them" },
	{ "--np = 2\n", " error F:1: unknown key '--np' | did you mean 'np'?" },
	{ "check = yes\nsummary = json\n", " check=1 summary=2 [a]" },
	{ "plan = json\n", " error F:1: unknown key 'plan' | use the long "
			   "name of an option; `runner --help all` lists them" },
	{ "forward = A,NEW=1 #2\n", " only forward=A forward=NEW=1 [a]" UNSET_A },
	{ "export HF_TOKEN=s3cret\n",
	  " error F:1: unknown key 'export HF_TOKEN' | use the long name of an option; "
	  "`runner --help all` lists them" },
	{ "np = 2\nHF_TOKEN: s3cret\n",
	  " error F:2: 'HF_TOKEN<redacted, 8 bytes>' is not 'key = value'" },
	{ "export = MY KEY=secret\n",
	  " error F:1: export: 'MY KEY=<redacted, 6 bytes>' is not a variable | write "
	  "NAME, NAME=VALUE or 'PREFIX*'" },
	{ "np 3\n", " error F:1: 'np 3' is not 'key = value'" },
	{ "np = 3x\n", " error F:1: np: '3x' is not a number from 1 to 1048576" },
	{ "np =\n", " error F:1: np: '' is not a number from 1 to 1048576" },
	{ "hosts = a\nhostfile = b\n",
	  " error F:2: hostfile: 'hostfile' cannot follow another "
	  "option that names hosts" HOSTS_HINT },
	{ "# Horovod\nparams:\n  fusion_threshold_mb: 32\n  cycle_time_ms: 2.5\n  "
	  "hierarchical_allreduce: false\nautotune:\n  enabled: true\n  log_file: "
	  "x\ntimeline:\n  filename: t.json # there\nlogging:\n  level: INFO\n",
	  " error F:2: this is a YAML file of horovodrun | leave out --config-file and "
	  "give the options: --fusion-threshold-mb 32 --cycle-time-ms 2.5 "
	  "--no-hierarchical-allreduce --autotune --autotune-log-file x "
	  "--timeline-filename t.json --log-level INFO" },
	{ "---\ncontroller: gloo\n", " error F:1: this is a YAML file of horovodrun | "
				     "write lines 'key = value'" },
	{ "np = 2\nparams:\n", " error F:2: 'params:' is not 'key = value'" },
	{ "np = 2\n\nparams:\n", " error F:3: 'params:' is not 'key = value'" },
};

static char *write_file(const char *dir, const char *name, const char *text)
{
	char *path = xasprintf("%s/%s", dir, name);
	FILE *f = fopen(path, "w");

	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
	return path;
}

/* TEXT with every WORD in it replaced by "F". */
static char *shorten(const char *text, const char *word)
{
	struct str s = { 0 };
	const char *hit;

	while ((hit = strstr(text, word))) {
		str_addn(&s, text, (size_t)(hit - text));
		str_add(&s, "F");
		text = hit + strlen(word);
	}
	str_add(&s, text);
	return str_take(&s);
}

START_TEST(test_config)
{
	char dir[] = "/tmp/berth-options-XXXXXX";
	char *path, *line, *got, *short_got;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	path = write_file(dir, "c", configs[_i].text);
	line = xasprintf("--config-file %s a", path);
	got = read_with(NULL, line, "");
	short_got = shorten(got, path);
	unlink(path);
	rmdir(dir);
	ck_assert_msg(!strcmp(short_got, configs[_i].want), "%s\n%s\n%s",
		      configs[_i].text, short_got, configs[_i].want);
	free(path);
	free(line);
	free(got);
	free(short_got);
}
END_TEST

/* Each source sets one key less than the one before: the last that has it must win. */
START_TEST(test_order)
{
	char dir[] = "/tmp/berth-options-XXXXXX";
	char *site, *user, *file, *folder, *line, *env, *got, *part;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	folder = xasprintf("%s/berth", dir);
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	site = write_file(dir, "site",
			  "gpus = 1\nppn = 1\nssh-port = 1\nnp = 1\nstart-timeout = "
			  "1\nhosts = h\n");
	user = write_file(folder, "config",
			  "ppn = 2\nssh-port = 2\nnp = 2\nstart-timeout = 2\nhostfile "
			  "= f\nexport = A=1\n");
	file = write_file(dir, "file", "ssh-port = 3\nnp = 3\nstart-timeout = 3\n");
	line = xasprintf("--config-file %s --start-timeout 5 a", file);
	env = xasprintf("XDG_CONFIG_HOME=%s BERTH_NP=4 BERTH_START_TIMEOUT=4 "
			"BERTH_CONFIG_FILE=/nonexistent",
			dir);
	got = read_with(site, line, env);
	part = xasprintf(" hostfile=f from=hostfile in %s:5 ppn=2 port=3 start=5 "
			 "gpus=1 all=A=1 np=4 npfrom=BERTH_NP [a]",
			 user);
	ck_assert_str_eq(got, part);
	free(part);
	free(got);
	got = read_with("/nonexistent/site", "a", "HOME=/nonexistent");
	ck_assert_str_eq(got, " [a]");
	unlink(site);
	unlink(user);
	unlink(file);
	rmdir(folder);
	rmdir(dir);
	free(site);
	free(user);
	free(file);
	free(folder);
	free(line);
	free(env);
	free(got);
}
END_TEST

/* ~/.config is used without XDG_CONFIG_HOME, and where that is no absolute path. */
START_TEST(test_home)
{
	char dir[] = "/tmp/berth-options-XXXXXX";
	char *config, *berth, *user, *env, *got;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	config = xasprintf("%s/.config", dir);
	berth = xasprintf("%s/berth", config);
	ck_assert_int_eq(mkdir(config, 0700) || mkdir(berth, 0700), 0);
	user = write_file(berth, "config", "ppn = 2\n");
	env = xasprintf("XDG_CONFIG_HOME=rel HOME=%s", dir);
	got = read_with(NULL, "a", env);
	ck_assert_str_eq(got, " ppn=2 [a]");
	unlink(user);
	rmdir(berth);
	rmdir(config);
	rmdir(dir);
	free(config);
	free(berth);
	free(user);
	free(env);
	free(got);
}
END_TEST

/* A folder and a file with a NUL are no config files. */
START_TEST(config_unreadable)
{
	struct setting s = { 0 };
	struct err e = { 0 };

	ck_assert_int_eq(config_read_file(&s, "/", false, &e), -1);
	ck_assert_int_eq(e.id, E_CONFIG_READ);
	ck_assert_int_eq(config_read_file(&s, "/proc/self/cmdline", true, &e), -1);
	ck_assert_str_eq(
		e.text, "cannot read config file '/proc/self/cmdline': it is not text");
	ck_assert_int_eq(config_read_file(&s, "/nonexistent/x", false, &e), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("config");
	TCase *t = tcase_create("config");
	SRunner *run;
	int failed;

	tcase_add_test(t, known_variables);
	tcase_add_loop_test(t, test_variable, 0,
			    (int)(sizeof variables / sizeof *variables));
	tcase_add_test(t, variable_list);
	tcase_add_loop_test(t, test_config, 0, (int)(sizeof configs / sizeof *configs));
	tcase_add_test(t, test_order);
	tcase_add_test(t, test_home);
	tcase_add_test(t, config_unreadable);
	suite_add_tcase(s, t);
	run = srunner_create(s);
	srunner_run_all(run, CK_NORMAL);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	return failed != 0;
}
