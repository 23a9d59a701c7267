/* ssh_config.h: what is left to the ssh program, and what is not. */
#include <check.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/ssh_config_free.h"

static char home[64], etc[80];

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
	chmod(path, 0600);
}

static void write_file(const char *folder, const char *name, const char *text)
{
	char *path = xasprintf("%s/%s", folder, name);

	write_text(path, text);
	free(path);
}

static void setup(void)
{
	char *ssh;

	snprintf(home, sizeof home, "/tmp/test_ssh_config.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(home));
	snprintf(etc, sizeof etc, "%s/etc", home);
	ssh = xasprintf("%s/.ssh", home);
	ck_assert(!mkdir(etc, 0700) && !mkdir(ssh, 0700));
	write_file(ssh, "more", "User more\n");
	free(ssh);
}

static void teardown(void)
{
	static const char *const names[] = {
		".ssh/config", ".ssh/more", ".ssh", "etc/ssh_config",
		"etc/a.conf",  "etc",       ""
	};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char *path = xasprintf("%s/%s", home, names[i]);

		remove(path);
		free(path);
	}
}

/* What CONFIG and the system's file SITE say of host "box". */
static void ask_as(struct ssh_config_facts *f, const char *config, const char *site,
		   bool agent)
{
	const struct ssh_config_given given = { .agent = agent };
	struct ssh_config c = { 0 };

	write_file(home, ".ssh/config", config);
	write_file(etc, "ssh_config", site);
	ssh_config_read(&c, home, etc);
	ssh_config_ask(&c, "box", &given, f);
	ssh_config_free(&c);
}

static void ask(struct ssh_config_facts *f, const char *config)
{
	ask_as(f, config, "", false);
}

/* ---- libssh logs in ---- */

static const char *const plain[] = {
	"",
	"# it's $HOME\n  # \\ \n\n\t\n",
	"Host box\nHostName n1\nPort 2222\nUser me\nIdentityFile ~/.ssh/id\n",
	"Host \"box\"\nHostName=n1\n",
	"HOST box\nhostname n1 # it's another name\n",
	"SendEnv LANG LC_*\nHashKnownHosts yes\nGSSAPIAuthentication yes\n",
	"ProxyCommand sh -c 'exec nc %h %p' $HOME\n",
	"ProxyCommand none\nProxyJump gate\n",
	"ProxyJump none\nProxyCommand false\n",
	"ProxyJump me@gate:2222,[fe80::1]:22\n",
	"UserKnownHostsFile \"~/.ssh/a b\" ~/.ssh/c\n",
	"LocalForward 1 h:2\nDynamicForward 3\nRekeyLimit 1G 1h\nIPQoS af21 cs1\n",
	"SetEnv A=1 B=2\nServerAliveInterval 5\nProtocol 2\n",
	"IgnoreUnknown Fn*,UseKeychain\nFnord yes\nUseKeychain yes\n",
	"Host other\nHostName $x\nHost *\nUser me\n",
	"Host other\nIdentityFile none\n",
	"Match host other exec false\nUser me\n",
	"Match host box user nobody localuser nobody\nUser me\n",
	"Match all\nUser me\n",
	"Match originalhost other\nUser me\n",
	"Match final all\nGSSAPIAuthentication yes\nGSSAPIKexAlgorithms x\n",
	"Match !final exec true host other\nUser me\n",
	"Include more\nInclude ~/.ssh/more no-such-*\n",
	"HostKeyAlgorithms rsa-sha2-512,ssh-ed25519\n",
	"HostKeyAlgorithms +ssh-rsa\n",
	"UpdateHostKeys no\nCheckHostIP no\nPubkeyAuthentication yes\n",
	"IdentitiesOnly yes\n",
	"User first\nUser $second\n",
};

START_TEST(libssh_is_enough)
{
	struct ssh_config_facts f;

	ask(&f, plain[_i]);
	ck_assert_msg(!f.why.len, "%s: %s", plain[_i], f.why.s);
	ssh_config_facts_free(&f);
}
END_TEST

/* ---- the ssh program judges ---- */

static const struct {
	const char *config, *why;
} odd[] = {
	/* words */
	{ "Host 'box'\n", "config:1" },
	{ "Host \\box\n", "config:1" },
	{ "Host b\"o\"x\n", "config:1" },
	{ "Host \"bo\"x\n", "config:1" },
	{ "Host box\n\"User\" eve\n", "config:2" },
	{ "=User eve\n", "config:1" },
	{ "User \"eve\n", "config:1" },
	{ "Host other\nUser \"eve\n", "config:2" },
	{ "ProxyCommand sh -c 'x\n", "config:1" },
	{ "User $x\n", "config:1" },
	{ "User %r\n", "config:1" },
	{ "HostName %n\n", "config:1" },
	{ "HostName %h.%p\n", "config:1" },
	{ "UserKnownHostsFile '~/.ssh/x'\n", "config:1" },
	{ "UserKnownHostsFile ${HOME}/x\n", "config:1" },
	{ "UserKnownHostsFile ~root/x\n", "userknownhostsfile" },
	{ "GlobalKnownHostsFile none\n", "globalknownhostsfile" },
	/* lines */
	{ "Fnord yes\n", "fnord (" },
	{ "Host other\nFnord yes\n", "fnord (" },
	{ "Fnord yes\nIgnoreUnknown Fnord\n", "fnord (" },
	{ "IgnoreUnknown Fnord\nIgnoreUnknown *\nOther yes\n", "other (" },
	{ "User\n", "config:1" },
	{ "User \"\"\n", "config:1" },
	{ "User eve alice\n", "config:1" },
	{ "Host other\nStrictHostKeyChecking no yes\n", "config:2" },
	{ "Host\n", "config:1" },
	{ "Match\n", "config:1" },
	{ "ProxyCommand\n", "config:1" },
	{ "LocalForward 1 2 3\n", "config:1" },
	{ "Port 70000\n", "port (" },
	{ "Port x\n", "port (" },
	{ "AddressFamily ip\n", "addressfamily (" },
	{ "HashKnownHosts perhaps\n", "hashknownhosts (" },
	{ "BatchMode perhaps\n", "batchmode (" },
	/* values */
	{ "IdentityFile none\n", "identityfile" },
	{ "IdentityFile ~/.ssh/id\nIdentityFile none\n", "identityfile" },
	{ "IdentityFile ~root/id\n", "identityfile" },
	{ "HostKeyAlgorithms ^rsa-sha2-512\n", "hostkeyalgorithms" },
	{ "HostKeyAlgorithms -ssh-ed25519\n", "hostkeyalgorithms" },
	{ "HostKeyAlgorithms rsa-*\n", "hostkeyalgorithms" },
	{ "HostKeyAlgorithms +rsa-*\n", "hostkeyalgorithms" },
	{ "HostKeyAlgorithms ssh-new\n", "hostkeyalgorithms" },
	{ "HostKeyAlgorithms ssh-ed25519,\n", "hostkeyalgorithms" },
	{ "UpdateHostKeys ask\n", "updatehostkeys" },
	{ "VerifyHostKeyDNS ask\n", "verifyhostkeydns" },
	{ "CheckHostIP perhaps\n", "checkhostip" },
	{ "PubkeyAuthentication unbound\n", "pubkeyauthentication" },
	{ "ProxyJump ssh://gate\n", "proxyjump" },
	{ "ProxyJump gate # the gate\n", "proxyjump" },
	{ "ProxyJump -oUser=x\n", "proxyjump" },
	{ "ProxyJump gate,,x\n", "proxyjump" },
	/* Match */
	{ "Match !exec false\n", "exec" },
	{ "Match exec true\nUser eve\n", "exec" },
	{ "Match host box exec true\n", "exec" },
	{ "Match exec\n", "config:1" },
	{ "Match host\n", "config:1" },
	{ "Match final exec true\n", "exec" },
	{ "Match final canonical all\n", "canonical" },
	{ "Match host box all\n", "config:1" },
	{ "HostName n1\nHost n1\nHostKeyAlias x\nMatch final\n", "hostkeyalias" },
	{ "Match canonical\n", "canonical" },
	{ "Match !all\n", "config:1" },
	{ "Match all host box\n", "config:1" },
	{ "Match host=box\n", "config:1" },
	{ "Match host 'box'\n", "config:1" },
	{ "Match originalhost box\n", "originalhost" },
	{ "Match tagged x\n", "config:1" },
	{ "Match sometimes\n", "config:1" },
	/* Include */
	{ "Include ~root/more\n", "~root/more" },
	{ "Include 'more'\n", "config:1" },
	{ "Include ${HOME}/more\n", "config:1" },
	{ "Include %d/more\n", "%d/more" },
	{ "Include ~\n", "'~'" },
	{ "Include\n", "config:1" },
	{ "Host other\nInclude ~root/more\n", "~root/more" },
	{ "Include config\n", "files that include each other" },
};

START_TEST(ssh_judges)
{
	struct ssh_config_facts f;

	ask(&f, odd[_i].config);
	ck_assert_msg(f.why.len, "%s: libssh is enough", odd[_i].config);
	ck_assert_msg(strstr(f.why.s, odd[_i].why) != NULL, "%s: %s", odd[_i].config,
		      f.why.s);
	ssh_config_facts_free(&f);
}
END_TEST

START_TEST(site_and_agent)
{
	struct ssh_config_facts f;

	ask_as(&f, "", "Include ~/.ssh/more\n", false); /* ssh ends */
	ck_assert(f.why.len);
	ssh_config_facts_free(&f);
	write_file(etc, "a.conf", "User site\n");
	ask_as(&f, "", "Include *.conf\n", true);
	ck_assert_msg(!f.why.len, "%s", f.why.s);
	ck_assert_str_eq(f.user, "site");
	ssh_config_facts_free(&f);
	ask_as(&f, "IdentitiesOnly yes\n", "", true);
	ck_assert_ptr_nonnull(strstr(str_text(&f.why), "identitiesonly"));
	ssh_config_facts_free(&f);
}
END_TEST

/* ---- values ---- */

START_TEST(values)
{
	struct ssh_config_facts f;

	ask(&f, "HostName %h.%%x.%h\nUser me\nPort 2222\nAddressFamily inet6\n"
		"StrictHostKeyChecking accept-new\n");
	ck_assert_msg(!f.why.len, "%s", f.why.s);
	ck_assert_str_eq(f.host, "box.%x.box");
	ck_assert_str_eq(f.user, "me");
	ck_assert_int_eq(f.port, 2222);
	ck_assert_int_eq(f.strict, STRICT_ACCEPT_NEW);
	ssh_config_facts_free(&f);
}
END_TEST

/* The second time only, behind all else; Host lines then are about HostName. */
START_TEST(final_values)
{
	struct ssh_config_facts f;

	ask(&f, "Match final\nStrictHostKeyChecking no\nUser last\nPort 7\n"
		"Match !final\nPort 8\nHost n1\nAddressFamily inet6\n"
		"Host box\nHostName n1\nUser me\nMatch FINAL host box\nHashKnownHosts "
		"yes\n");
	ck_assert_msg(!f.why.len, "%s", f.why.s);
	ck_assert_int_eq(f.strict, STRICT_NO);
	ck_assert_str_eq(f.user, "me");
	ck_assert_int_eq(f.port, 8);
	ck_assert_int_eq(f.family, AF_INET6);
	ck_assert(!f.hash_names);
	ssh_config_facts_free(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ssh_config");
	TCase *c = tcase_create("ssh_config");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_loop_test(c, libssh_is_enough, 0, sizeof plain / sizeof *plain);
	tcase_add_loop_test(c, ssh_judges, 0, sizeof odd / sizeof *odd);
	tcase_add_test(c, site_and_agent);
	tcase_add_test(c, values);
	tcase_add_test(c, final_values);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
