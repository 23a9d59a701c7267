/* known_hosts.h: lines, verdicts, the order of algorithms, new lines; name_hash.h;
 * pattern.h. */
#include <check.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/transport/known_hosts.h"
#include "launcher/transport/name_hash.h"
#include "launcher/transport/pattern.h"

/* Keys of the right form, made of one byte each. */
#define ED_A                                                                           \
	"ssh-ed25519 "                                                                 \
	"AAAAC3NzaC1lZDI1NTE5AAAAIEFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB"
#define ED_B                                                                           \
	"ssh-ed25519 "                                                                 \
	"AAAAC3NzaC1lZDI1NTE5AAAAIEJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJC"
#define ECDSA                                                                          \
	"ecdsa-sha2-nistp256 "                                                         \
	"AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBENDQ0NDQ0NDQ0NDQ0NDQ0ND" \
	"Q0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0M="
#define IN "|1|AAAAAAAAAAAAAAAAAAAAAAAAAAA=|" /* a salt of zeros */

static struct known_keys ask(const char *text, const char *name, const char *bare)
{
	struct known_file *f = known_file_parse("F", xstrdup(text), strlen(text));
	struct known_keys keys = { 0 };

	known_file_find(f, name, false, &keys);
	if (bare)
		known_file_find(f, bare, true, &keys);
	known_file_drop(f);
	return keys;
}

static const struct {
	const char *text, *name, *bare; /* bare: at another port than 22 */
	enum known_verdict verdict;     /* on ED_A */
	const char *only_ssh;
} cases[] = {
	{ "", "n1", NULL, KNOWN_NEW, "" },
	{ "n1 " ED_A, "n1", NULL, KNOWN_OK, "" },
	{ "\n#n1 " ED_A "\n  \t\n", "n1", NULL, KNOWN_NEW, "" },
	{ " \tn2,N1,n3\t" ED_A " comment\r\n", "n1", NULL, KNOWN_OK, "" },
	{ "n1 " ED_A "\r\n", "n1", NULL, KNOWN_OK, "" },
	{ "n1 " ED_B, "n1", NULL, KNOWN_CHANGED, "" },
	{ "n1 " ECDSA, "n1", NULL, KNOWN_CHANGED, "" },
	{ "n1 " ED_B "\nn1 " ED_A "\nn1 " ECDSA, "n1", NULL, KNOWN_OK, "" },
	{ "n11 " ED_A, "n1", NULL, KNOWN_NEW, "" },
	{ "n* " ED_A, "n1", NULL, KNOWN_OK, "" },
	{ "*.b*.c,a*c " ED_A, "abc", NULL, KNOWN_OK, "" },
	{ "n? " ED_A, "n", NULL, KNOWN_NEW, "" },
	{ "n[1] " ED_A, "n1", NULL, KNOWN_NEW, "" },
	{ "*,!n1 " ED_A, "n1", NULL, KNOWN_NEW, "" },
	{ "!n1,* " ED_A, "n1", NULL, KNOWN_NEW, "" },
	{ "!n2,n1 " ED_A, "n1", NULL, KNOWN_OK, "" },
	{ "!n2 " ED_A, "n1", NULL, KNOWN_NEW, "" },
	{ "n1\nn1 \n", "n1", NULL, KNOWN_NEW, "the key in F:1" },
	{ "n1 ssh-ed25519 AAAA\n", "n1", NULL, KNOWN_NEW, "the key in F:1" },
	{ "n2 x\nn1 ssh-dss AAAA\n", "n1", NULL, KNOWN_NEW, "the key in F:2" },
	{ "n2 ssh-dss AAAA\n", "n1", NULL, KNOWN_NEW, "" },
	{ "n1 ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIEFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB"
	  "QUFB",
	  "n1", NULL, KNOWN_NEW, "the key in F:1" },
	{ "@revoked n1 " ED_A, "n1", NULL, KNOWN_NEW, "@revoked in F:1" },
	{ "n1 " ED_A "\n\t@cert-authority  n*  " ED_B, "n1", NULL, KNOWN_OK,
	  "@cert-authority in F:2" },
	{ "n1 " ED_A "\n@revoked *,!n1 " ED_A, "n1", NULL, KNOWN_OK, "" },
	{ "@", "n1", NULL, KNOWN_NEW, "" },
	{ "@revoked", "n1", NULL, KNOWN_NEW, "" },
	{ "[n1]:7 " ED_A, "[n1]:7", "n1", KNOWN_OK, "" },
	{ "n1 " ED_A, "[n1]:7", "n1", KNOWN_OK, "" },
	{ "n1 " ED_B, "[n1]:7", "n1", KNOWN_NEW, "" },
	{ "n1 " ED_A "\n[n1]:7 " ED_B, "[n1]:7", "n1", KNOWN_CHANGED, "" },
	{ "[n*]:7 " ED_A, "[n1]:7", "n1", KNOWN_OK, "" },
	{ "[n1]:22 " ED_A, "n1", NULL, KNOWN_NEW, "" },
	{ "@revoked n1 " ED_A, "[n1]:7", "n1", KNOWN_NEW, "@revoked in F:1" },
	/* HMAC-SHA1 of "n1", by python */
	{ IN "opn8I2ifigJVppFrtkLS01mE8lM= " ED_A, "n1", NULL, KNOWN_OK, "" },
	{ IN "opn8I2ifigJVppFrtkLS01mE8lM= " ED_A, "n2", NULL, KNOWN_NEW, "" },
	{ IN "opn8I2ifigJVppFrtkLS01mE8lM " ED_A, "n1", NULL, KNOWN_NEW, "" },
	{ IN ED_A "\n|1|\n|1|a|b\n|2|a|b\n|", "n1", NULL, KNOWN_NEW, "" },
	{ "@revoked " IN "opn8I2ifigJVppFrtkLS01mE8lM= " ED_A, "n1", NULL, KNOWN_NEW,
	  "@revoked in F:1" },
};

START_TEST(judges)
{
	unsigned char blob[256];
	const size_t n = known_key_decode(blob, sizeof blob, strchr(ED_A, ' ') + 1);
	struct known_keys keys = ask(cases[_i].text, cases[_i].name, cases[_i].bare);

	ck_assert_int_eq(known_keys_judge(&keys, blob, n), cases[_i].verdict);
	ck_assert_str_eq(str_text(&keys.only_ssh), cases[_i].only_ssh);
	known_keys_free(&keys);
}
END_TEST

START_TEST(long_names)
{
	struct str text = { 0 };
	struct known_keys keys;

	for (int i = 0; i < 400; i++)
		str_addf(&text, "host%d.example.org,", i);
	str_addf(&text, "n1 %s\n%01023d,n2 %s\n", ED_A, 0, ED_A);
	keys = ask(str_text(&text), "n1", NULL);
	ck_assert_uint_eq(keys.n, 1);
	known_keys_free(&keys);
	keys = ask(str_text(&text), "n2", NULL); /* ssh refuses so long a name */
	ck_assert_uint_eq(keys.n, 0);
	known_keys_free(&keys);
	str_free(&text);
}
END_TEST

START_TEST(many_lines)
{
	struct str text = { 0 };
	struct known_file *f;

	for (int i = 0; i < 5000; i++)
		str_addf(&text, "h%d,10.0.%d.%d %s\n", i, i / 250, i % 250,
			 i % 2 ? ED_A : ED_B);
	f = known_file_parse("F", text.s, text.len);
	for (int i = 0; i < 5000; i++) {
		char name[32];
		struct known_keys keys = { 0 };

		snprintf(name, sizeof name, "h%d", i);
		known_file_find(f, name, false, &keys);
		ck_assert_uint_eq(keys.n, 1);
		ck_assert_uint_eq(keys.v[0].blob[keys.v[0].n - 1], i % 2 ? 'A' : 'B');
		known_keys_free(&keys);
	}
	known_file_drop(f);
}
END_TEST

START_TEST(orders_algorithms)
{
	static const struct {
		const char *text, *more, *list;
	} orders[] = {
		{ "n1 " ECDSA, "",
		  "ecdsa-sha2-nistp256,ssh-ed25519,ecdsa-sha2-nistp384,"
		  "ecdsa-sha2-nistp521,rsa-sha2-512,rsa-sha2-256" },
		/* the best type is known: ssh leaves its order alone */
		{ "n1 " ECDSA "\nn1 " ED_A, "ssh-rsa",
		  "ssh-ed25519,ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,"
		  "ecdsa-sha2-nistp521,rsa-sha2-512,rsa-sha2-256,ssh-rsa" },
	};

	for (size_t i = 0; i < 2; i++) {
		struct known_keys keys = ask(orders[i].text, "n1", NULL);
		char *list = known_keys_algorithms(&keys, orders[i].more);

		ck_assert_str_eq(list, orders[i].list);
		free(list);
		known_keys_free(&keys);
	}
}
END_TEST

START_TEST(matches_patterns)
{
	static const struct {
		const char *list, *text;
		bool hit, folded;
	} patterns[] = {
		{ "", "", false, false },         { "*", "", true, true },
		{ "a*c", "abcbc", true, true },   { "a*c", "abcb", false, false },
		{ "A?", "ab", false, true },      { "**a**b", "xaxb", true, true },
		{ "n[1]", "n1", false, false },   { "x,n*", "n1", true, true },
		{ "n*,!n1", "n1", false, false }, { "!n1,n*", "n1", false, false },
		{ "!n2", "n1", false, false },    { "!N2,n1", "n2", false, false },
		{ ",,a", "a", true, true },
	};

	for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
		const char *list = patterns[i].list, *text = patterns[i].text;

		ck_assert_msg(pattern_list(list, text, false) == patterns[i].hit, "%s",
			      list);
		ck_assert_msg(pattern_list(list, text, true) == patterns[i].folded,
			      "%s", list);
	}
	ck_assert(pattern_match("a,b", 3, "a,b", false));
	ck_assert(!pattern_match("a,b", 3, "a", false));
}
END_TEST

START_TEST(names_ports)
{
	char *a = known_name("N1.Example", 22), *b = known_name("fe80::1", 2222);

	ck_assert_str_eq(a, "n1.example");
	ck_assert_str_eq(b, "[fe80::1]:2222");
	free(a);
	free(b);
}
END_TEST

static bool matches(const char *hashed, const char *name)
{
	struct name_hash h;

	return name_hash_read(&h, hashed) && name_hash_match(&h, name);
}

START_TEST(hashes_names)
{
	static const char *const names[] = { "", "n1", "[n1]:2222" };
	char longest[200];
	char *hash;

	for (size_t i = 0; i < 3; i++) {
		hash = name_hash_new(names[i]);
		ck_assert(matches(hash, names[i]));
		ck_assert(!matches(hash, "other"));
		free(hash);
	}
	/* each length of the last block */
	for (size_t n = 0; n < sizeof longest; n++) {
		memset(longest, 'x', n);
		longest[n] = '\0';
		hash = name_hash_new(longest);
		ck_assert(matches(hash, longest));
		free(hash);
	}
	/* by python, of 55, 56 and 64 letters x */
	memset(longest, 'x', sizeof longest);
	longest[64] = '\0';
	ck_assert(matches(IN "Eadtma5ppqR/sQcLcQ7lrATHsM4=", longest));
	longest[56] = '\0';
	ck_assert(matches(IN "dQmPIxo4SS6zDWU5IyxYczx9z7U=", longest));
	longest[55] = '\0';
	ck_assert(matches(IN "79uervdNQDm62rJyj6hETgHBgmM=", longest));
}
END_TEST

static char *read_all(const char *path)
{
	char *text = xstrndup("", 4096);
	FILE *f = fopen(path, "re");

	text = xrealloc(text, 4096);
	text[f ? fread(text, 1, 4095, f) : 0] = '\0';
	if (f)
		fclose(f);
	return text;
}

START_TEST(adds_lines)
{
	char dir[] = "/tmp/berth-known.XXXXXX";
	char *ssh, *path, *text;
	struct known_file *f;
	struct known_keys keys = { 0 };
	struct stat st;

	if (!mkdtemp(dir))
		abort();
	ssh = xasprintf("%s/.ssh", dir);
	path = xasprintf("%s/known_hosts", ssh);
	f = known_file_get(path); /* missing */
	known_file_find(f, "n1", false, &keys);
	ck_assert_uint_eq(keys.n, 0);
	known_file_drop(f);
	ck_assert(!known_hosts_add(path, ssh, "n1", "ssh-ed25519",
				   strchr(ED_A, ' ') + 1, false));
	ck_assert(!stat(ssh, &st));
	ck_assert_uint_eq(st.st_mode & 07777, 0700);
	text = read_all(path);
	ck_assert_str_eq(text, "n1 " ED_A "\n");
	free(text);
	if (truncate(path, (off_t)strlen("n1 " ED_A))) /* no newline at its end */
		abort();
	ck_assert(!known_hosts_add(path, ssh, "n2", "ssh-ed25519",
				   strchr(ED_B, ' ') + 1, true));
	text = read_all(path);
	ck_assert(!strncmp(text, "n1 " ED_A "\n|1|", strlen("n1 " ED_A) + 4));
	free(text);
	f = known_file_get(path); /* read anew, as it has changed */
	known_file_find(f, "n1", false, &keys);
	known_file_find(f, "n2", false, &keys);
	ck_assert_uint_eq(keys.n, 2);
	known_file_drop(f);
	known_keys_free(&keys);
	ck_assert(known_hosts_add(ssh, ssh, "n1", "t", "k", false) == -1);
	ck_assert_int_eq(errno, EISDIR);
	unlink(path);
	if (mkfifo(path, 0600))
		abort();
	f = known_file_get(path); /* is not waited for */
	known_file_find(f, "n1", false, &keys);
	ck_assert_str_eq(str_text(&keys.only_ssh), path);
	known_file_drop(f);
	known_keys_free(&keys);
	unlink(path);
	rmdir(ssh);
	rmdir(dir);
	free(ssh);
	free(path);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("known_hosts");
	TCase *t = tcase_create("known_hosts");
	SRunner *r;
	int failed;

	tcase_add_loop_test(t, judges, 0, sizeof cases / sizeof *cases);
	tcase_add_test(t, long_names);
	tcase_add_test(t, many_lines);
	tcase_add_test(t, orders_algorithms);
	tcase_add_test(t, matches_patterns);
	tcase_add_test(t, names_ports);
	tcase_add_test(t, hashes_names);
	tcase_add_test(t, adds_lines);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
