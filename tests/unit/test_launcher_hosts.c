/* hosts.h: -H and host files to a list, the list folded to text again. */
#include <check.h>
#include <unistd.h>

#include "launcher/hosts.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* "user@name:slots/max ..." as a test compares it, "name:port:slots" with a port. */
static char *show(const struct hosts *h)
{
	struct str s = { 0 };

	for (size_t i = 0; i < h->n; i++) {
		const struct host_spec *v = &h->v[i];

		str_addf(&s, "%s%s%s%s:", i ? " " : "", v->user ? v->user : "",
			 v->user ? "@" : "", v->name);
		if (v->port)
			str_addf(&s, "%d:", v->port);
		str_addf(&s, "%d", v->slots);
		if (v->max_slots)
			str_addf(&s, "/%d", v->max_slots);
	}
	return str_take(&s);
}

#define TEXT_255                                                                       \
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."             \
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."             \
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."             \
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

/* Makes eight names of one, all the same: short text, much work. */
#define TWICE "[1,1][1,1][1,1]"

static const struct {
	const char *spec, *want;
} good[] = {
	{ "a", "a:1" },
	{ "a:8", "a:8" },
	{ "ip1:8,ip2:8", "ip1:8 ip2:8" },
	{ " a:2 ,\tb ", "a:2 b:1" },
	{ "user@a:8", "user@a:8" },
	{ "a.b-c_d.example:65535", "a.b-c_d.example:65535" },
	{ "10.0.0.1:4", "10.0.0.1:4" },
	{ "[fe80::1]:8", "fe80::1:8" },
	{ "[::1]", "::1:1" },
	{ "bob@[fe80::1%eth0]:2", "bob@fe80::1%eth0:2" },
	{ "[::ffff:10.0.0.1]:2", "::ffff:10.0.0.1:2" },
	{ "gpu[01-03]:8", "gpu01:8 gpu02:8 gpu03:8" },
	{ "gpu[01-02,7]", "gpu01:1 gpu02:1 gpu7:1" },
	{ "gpu[8-11]", "gpu8:1 gpu9:1 gpu10:1 gpu11:1" },
	{ "gpu[099-101]", "gpu099:1 gpu100:1 gpu101:1" },
	{ "gpu[5]", "gpu5:1" },
	{ "u@r[1-2]n[1-2].lan:4",
	  "u@r1n1.lan:4 u@r1n2.lan:4 u@r2n1.lan:4 u@r2n2.lan:4" },
	{ "[1-2]x", "1x:1 2x:1" },
	{ "10.0.0.[1-2]:4", "10.0.0.1:4 10.0.0.2:4" },
	{ "a,a", "a:2" },
	{ "a:2,b:1,a:3", "a:5 b:1" },
	{ "A:1,a:1", "A:2" },
	{ "gpu[1-2]:2,gpu1:2", "gpu1:4 gpu2:2" },
	{ "u@a,u@a:3", "u@a:4" },
	{ "a:gpus,b:gpus", "a:-1 b:-1" },
	{ "a:2222:2", "a:2222:2" },
	{ "a:22:gpus,b:4", "a:22:-1 b:4" },
	{ "u@gpu[1-2]:65535:8", "u@gpu1:65535:8 u@gpu2:65535:8" },
	{ "[fe80::1]:2222:8,10.0.0.1:2222:8", "fe80::1:2222:8 10.0.0.1:2222:8" },
	{ "a:2222:2,b:1,a:2222:3", "a:2222:5 b:1" },
	{ TEXT_255, TEXT_255 ":1" },
};

START_TEST(parse_good)
{
	struct hosts h = { 0 };
	struct err e = { 0 };
	char *text;

	ck_assert_msg(!hosts_parse(&h, good[_i].spec, &e), "%s", e.text);
	text = show(&h);
	ck_assert_str_eq(text, good[_i].want);
	free(text);
	hosts_free(&h);
	ck_assert(!h.v && !h.n);
	hosts_free(&h);
}
END_TEST

static const struct {
	const char *spec;
	enum err_id id;
	const char *text;
} bad[] = {
	{ "", E_HOST_NAME, "host '': not a host name: it is empty" },
	{ "a,,b", E_HOST_NAME, "host '': not a host name: it is empty" },
	{ "a,", E_HOST_NAME, "host '': not a host name: it is empty" },
	{ ":8", E_HOST_NAME, "host ':8': not a host name: it is empty" },
	{ "-oProxyCommand=x", E_HOST_NAME,
	  "host '-oProxyCommand=x': not a host name: it begins with '-'" },
	{ "a=b", E_HOST_NAME, "host 'a=b': not a host name: it has a '='" },
	{ "-rf", E_HOST_NAME, "host '-rf': not a host name: it begins with '-'" },
	{ "[1-2]-a,[1]-,-[1]", E_HOST_NAME,
	  "host '-[1]': not a host name: it begins with '-'" },
	{ "a;b", E_HOST_NAME, "host 'a;b': not a host name: it has a ';'" },
	{ "a b", E_HOST_NAME, "host 'a b': not a host name: it has a ' '" },
	{ "$(x)", E_HOST_NAME, "host '$(x)': not a host name: it has a '$'" },
	{ "a\x1b[1]", E_HOST_NAME,
	  "host 'a?[1]': not a host name: it has a byte 0x1b" },
	{ "h\xc3\xb6st", E_HOST_NAME,
	  "host 'h??st': not a host name: it has a byte 0xc3" },
	{ "./hosts:2", E_HOST_NAME, "host './hosts:2': not a host name: it has a '/'" },
	{ TEXT_255 "a", E_HOST_NAME,
	  "host 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa....': "
	  "not a host name: it is longer than 255 bytes" },
	{ "@a", E_HOST_USER, "host '@a': '' is not a user name: it is empty" },
	{ "-l@a", E_HOST_USER,
	  "host '-l@a': '-l' is not a user name: it begins with '-'" },
	{ "a b@c", E_HOST_USER,
	  "host 'a b@c': 'a b' is not a user name: it has a ' '" },
	{ "a@b@c", E_HOST_USER,
	  "host 'a@b@c': 'a@b' is not a user name: it has a '@'" },
	{ "a:8@b", E_HOST_USER,
	  "host 'a:8@b': 'a:8' is not a user name: it has a ':'" },
	{ "a:x", E_HOST_SLOTS,
	  "host 'a:x': 'x' is not a number of slots from 1 to 65535, or 'gpus'" },
	{ "a:", E_HOST_SLOTS,
	  "host 'a:': '' is not a number of slots from 1 to 65535, or 'gpus'" },
	{ "a:0", E_HOST_SLOTS,
	  "host 'a:0': '0' is not a number of slots from 1 to 65535, or 'gpus'" },
	{ "a:-1", E_HOST_SLOTS,
	  "host 'a:-1': '-1' is not a number of slots from 1 to 65535, or 'gpus'" },
	{ "a:65536", E_HOST_SLOTS,
	  "host 'a:65536': '65536' is not a number of slots from 1 to 65535, or "
	  "'gpus'" },
	{ "a:99999999999999999999", E_HOST_SLOTS,
	  "host 'a:99999999999999999999': '99999999999999999999' is not a number of "
	  "slots "
	  "from 1 to 65535, or 'gpus'" },
	{ "a:8:8:8", E_HOST_SLOTS,
	  "host 'a:8:8:8': '8:8' is not a number of slots from 1 to 65535, or 'gpus'" },
	{ "a:22:", E_HOST_SLOTS,
	  "host 'a:22:': '' is not a number of slots from 1 to 65535, or 'gpus'" },
	{ "n::2", E_HOST_PORT, "host 'n::2': '' is not a port from 1 to 65535" },
	{ "a:0:2", E_HOST_PORT, "host 'a:0:2': '0' is not a port from 1 to 65535" },
	{ "a:65536:2", E_HOST_PORT,
	  "host 'a:65536:2': '65536' is not a port from 1 to 65535" },
	{ "a:gpus:2", E_HOST_PORT,
	  "host 'a:gpus:2': 'gpus' is not a port from 1 to 65535" },
	{ "[::1]:-1:2", E_HOST_PORT,
	  "host '[::1]:-1:2': '-1' is not a port from 1 to 65535" },
	{ "a:22:1,a:23:1", E_HOST_PORTS,
	  "host 'a:23:1': given twice, with different ports" },
	{ "a:22:1,a", E_HOST_PORTS, "host 'a': given twice, with different ports" },
	{ "fe80::1", E_HOST_IPV6, "host 'fe80::1': an IPv6 address needs brackets" },
	{ "u@::1", E_HOST_IPV6, "host 'u@::1': an IPv6 address needs brackets" },
	{ "[fe80::zz]", E_HOST_ADDRESS,
	  "host '[fe80::zz]': 'fe80::zz' is not an IPv6 address" },
	{ "[fe80::1%]", E_HOST_ADDRESS,
	  "host '[fe80::1%]': 'fe80::1%' is not an IPv6 address" },
	{ "[fe80::1%a b]", E_HOST_ADDRESS,
	  "host '[fe80::1%a b]': 'fe80::1%a b' is not an IPv6 address" },
	{ "[::1", E_HOST_BRACKET, "host '[::1': no ']' after '['" },
	{ "gpu[1", E_HOST_BRACKET, "host 'gpu[1': no ']' after '['" },
	{ "gpu[1,2", E_HOST_BRACKET, "host 'gpu[1,2': no ']' after '['" },
	{ "[::1]8", E_HOST_AFTER, "host '[::1]8': '8' cannot follow ']'" },
	{ "gpu[]", E_HOST_RANGE, "host 'gpu[]': '' is not a range of numbers" },
	{ "gpu[1,]", E_HOST_RANGE, "host 'gpu[1,]': '' is not a range of numbers" },
	{ "gpu[a-b]", E_HOST_RANGE,
	  "host 'gpu[a-b]': 'a-b' is not a range of numbers" },
	{ "gpu[1-]", E_HOST_RANGE, "host 'gpu[1-]': '1-' is not a range of numbers" },
	{ "gpu[1-2x]", E_HOST_RANGE,
	  "host 'gpu[1-2x]': '1-2x' is not a range of numbers" },
	{ "gpu[1234567890]", E_HOST_RANGE,
	  "host 'gpu[1234567890]': '1234567890' is not a range of numbers" },
	{ "gpu[9-1]", E_HOST_RANGE_ORDER,
	  "host 'gpu[9-1]': the range 9-1 is descending" },
	{ "gpu[1-99999999]", E_HOSTS_MANY,
	  "host 'gpu[1-99999999]': more than 65536 hosts" },
	{ "n[0-65535],m", E_HOSTS_MANY, "host 'm': more than 65536 hosts" },
	{ "a[1-9]" TWICE TWICE TWICE TWICE TWICE, E_HOSTS_MANY,
	  "host 'a[1-9][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,1][1,...': "
	  "more than 65536 hosts" },
	{ "u@a,a", E_HOST_USERS,
	  "host 'a': given twice, with user 'u' and with user ''" },
	{ "u@a,v@a", E_HOST_USERS,
	  "host 'v@a': given twice, with user 'u' and with user 'v'" },
	{ "a:gpus,a", E_HOST_GPUS_AGAIN,
	  "host 'a': given twice, but slots cannot be added to ':gpus'" },
	{ "a,a:gpus", E_HOST_GPUS_AGAIN,
	  "host 'a:gpus': given twice, but slots cannot be added to ':gpus'" },
	{ "a:65535,a", E_HOST_SUM, "host 'a': its slots add up to more than 65535" },
};

START_TEST(parse_bad)
{
	struct hosts h = { 0 };
	struct err e = { 0 };

	ck_assert_int_eq(hosts_parse(&h, bad[_i].spec, &e), -1);
	ck_assert_str_eq(e.text, bad[_i].text);
	ck_assert_int_eq(e.id, bad[_i].id);
	ck_assert_int_eq(err_status(e.id), EXIT_USAGE);
	ck_assert_str_ne(e.hint, "");
	ck_assert(!h.v && !h.n);
	ck_assert_int_eq(hosts_parse(&h, bad[_i].spec, NULL), -1);
}
END_TEST

START_TEST(hints_of_mistaken_lists)
{
	struct hosts h = { 0 };
	struct err e = { 0 };

	hosts_parse(&h, "conf/hosts", &e);
	ck_assert_str_eq(e.hint, "name a file of hosts with --hostfile");
	hosts_parse(&h, "fe80::1", &e);
	ck_assert_str_eq(e.hint, "write '[fe80::1]' or '[fe80::1]:SLOTS'");
}
END_TEST

static void write_file(char *path, const void *bytes, size_t n)
{
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
	close(fd);
}

START_TEST(hints_of_words_in_files)
{
	struct hosts h = { 0 };
	struct err e = { 0 };
	char path[] = "/tmp/hosts-XXXXXX";

	write_file(path, "a ifhn=b", 8);
	hosts_read_file(&h, path, &e);
	ck_assert_str_eq(e.hint, "leave out ifhn; --net chooses the addresses that "
				 "libberth's ranks use");
	unlink(path);
}
END_TEST

/* H as -H takes it. */
static char *unparse(const struct hosts *h)
{
	struct str s = { 0 };

	for (size_t i = 0; i < h->n; i++) {
		const struct host_spec *v = &h->v[i];

		str_addf(&s, "%s%s%s", i ? "," : "", v->user ? v->user : "",
			 v->user ? "@" : "");
		hosts_fold(&s, (const char *const *)&v->name, 1);
		if (v->port)
			str_addf(&s, ":%d", v->port);
		if (v->slots == SLOTS_GPUS)
			str_add(&s, ":gpus");
		else
			str_addf(&s, ":%d", v->slots);
	}
	return str_take(&s);
}

START_TEST(text_of_a_list_is_that_list)
{
	struct hosts h = { 0 }, again = { 0 };
	char *text, *before, *after;

	ck_assert(!hosts_parse(&h, good[_i].spec, NULL));
	text = unparse(&h);
	ck_assert(!hosts_parse(&again, text, NULL));
	before = show(&h);
	after = show(&again);
	ck_assert_str_eq(before, after);
	free(text);
	free(before);
	free(after);
	hosts_free(&h);
	hosts_free(&again);
}
END_TEST

START_TEST(many_hosts_take_no_quadratic_time)
{
	struct hosts h = { 0 };
	struct err e = { 0 };

	ck_assert(!hosts_parse(&h, "n[0-65535]:2,n[0-65535]:1", &e));
	ck_assert_uint_eq(h.n, HOSTS_MAX);
	ck_assert_str_eq(h.v[65535].name, "n65535");
	ck_assert_int_eq(h.v[65535].slots, 3);
	hosts_free(&h);
}
END_TEST

/* ---- files ---- */

static const struct {
	const char *file, *want;
	enum err_id id;
	const char *text; /* F stands for the file */
} files[] = {
	/* Open MPI */
	{ "a slots=8 max_slots=8\nb slots=4\n", "a:8/8 b:4", ERR_NONE, "" },
	{ "a slots = 8 max-slots = 16", "a:8/16", ERR_NONE, "" },
	{ "a max_slots=4", "a:1/4", ERR_NONE, "" },
	{ "u@gpu[1-2] slots=2", "u@gpu1:2 u@gpu2:2", ERR_NONE, "" },
	{ "a slots=2 max_slots=4\na slots=2 max_slots=4\n", "a:4/8", ERR_NONE, "" },
	{ "a slots=gpus", "a:-1", ERR_NONE, "" },
	{ "a port=2222", "a:2222:1", ERR_NONE, "" },
	{ "a slots=2 port = 2222 max_slots=4", "a:2222:2/4", ERR_NONE, "" },
	{ "a:2222:8\n[::1]:22:2\nb:4 port=23\n", "a:2222:8 ::1:22:2 b:23:4", ERR_NONE,
	  "" },
	{ "a port=22\na port=22 slots=2", "a:22:3", ERR_NONE, "" },
	/* MPICH */
	{ "a:8\nb:4", "a:8 b:4", ERR_NONE, "" },
	/* PBS */
	{ "n1\nn1\nn2\nn2\nn1\n", "n1:3 n2:2", ERR_NONE, "" },
	/* all */
	{ "# head\n\n  \t\na   # tail\r\n\r\n\tb:2\r\n#", "a:1 b:2", ERR_NONE, "" },
	{ "\xef\xbb\xbf"
	  "a:2\n",
	  "a:2", ERR_NONE, "" },
	{ "[::1]:2", "::1:2", ERR_NONE, "" },

	{ "", NULL, E_HOSTFILE_EMPTY, "host file 'F' names no host" },
	{ "# none\n\n", NULL, E_HOSTFILE_EMPTY, "host file 'F' names no host" },
	{ "a\n\nb c\n", NULL, E_HOSTFILE_WORD,
	  "F:3: host 'b': unknown word 'c' in a host file" },
	{ "a port=", NULL, E_HOST_PORT,
	  "F:1: host 'a': '' is not a port from 1 to 65535" },
	{ "a:22:2 port=22", NULL, E_HOST_PORT_AGAIN,
	  "F:1: host 'a:22:2': its port is given twice on one line" },
	{ "a port=22\na port=23", NULL, E_HOST_PORTS,
	  "F:2: host 'a': given twice, with different ports" },
	{ "a ports=22", NULL, E_HOSTFILE_WORD,
	  "F:1: host 'a': unknown word 'ports=22' in a host file" },
	{ "a ifhn=10.0.0.1", NULL, E_HOSTFILE_WORD,
	  "F:1: host 'a': unknown word 'ifhn=10.0.0.1' in a host file" },
	{ "a slots", NULL, E_HOSTFILE_WORD,
	  "F:1: host 'a': unknown word 'slots' in a host file" },
	{ "a slots=", NULL, E_HOST_SLOTS,
	  "F:1: host 'a': '' is not a number of slots from 1 to 65535, or 'gpus'" },
	{ "a max_slots=gpus", NULL, E_HOST_SLOTS,
	  "F:1: host 'a': 'gpus' is not a number of slots from 1 to 65535" },
	{ "a:2 slots=2", NULL, E_HOST_SLOTS_AGAIN,
	  "F:1: host 'a:2': its slots are given twice on one line" },
	{ "a slots=8 max_slots=4", NULL, E_HOST_MAX_SLOTS,
	  "F:1: host 'a': max_slots=4 is less than slots=8" },
	{ "a slots=4 max_slots=5\na:4", NULL, E_HOST_MAX_SLOTS,
	  "F:2: host 'a:4': max_slots=5 is less than slots=8" },
	{ "a:2,b:2", NULL, E_HOST_PORT,
	  "F:1: host 'a:2,b:2': '2,b' is not a port from 1 to 65535" },
	{ "^a", NULL, E_HOST_NAME, "F:1: host '^a': not a host name: it has a '^'" },
	{ "u@a\nv@a", NULL, E_HOST_USERS,
	  "F:2: host 'v@a': given twice, with user 'u' and with user 'v'" },
};

/* TEXT with the first PATH as F. */
static char *with_f(const char *text, const char *path)
{
	const char *at = strstr(text, path);

	ck_assert_msg(at != NULL, "no '%s' in '%s'", path, text);
	return xasprintf("%.*sF%s", (int)(at - text), text, at + strlen(path));
}

START_TEST(read_files)
{
	char path[] = "/tmp/hosts-XXXXXX", *text;
	struct hosts h = { 0 };
	struct err e = { 0 };
	int rc;

	write_file(path, files[_i].file, strlen(files[_i].file));
	rc = hosts_read_file(&h, path, &e);
	unlink(path);
	ck_assert_int_eq(e.id, files[_i].id);
	ck_assert_int_eq(rc, files[_i].want ? 0 : -1);
	text = files[_i].want ? show(&h) : with_f(e.text, path);
	ck_assert_str_eq(text, files[_i].want ? files[_i].want : files[_i].text);
	free(text);
	hosts_free(&h);
}
END_TEST

START_TEST(read_no_file)
{
	char path[] = "/tmp/hosts-XXXXXX", *want;
	struct hosts h = { 0 };
	struct err e = { 0 };

	ck_assert_int_eq(hosts_read_file(&h, "/no/such", &e), -1);
	ck_assert_int_eq(e.id, E_HOSTFILE_READ);
	ck_assert_str_eq(e.text,
			 "cannot read host file '/no/such': No such file or directory");
	ck_assert_int_eq(hosts_read_file(&h, "/tmp", &e), -1);
	ck_assert_str_eq(e.text, "cannot read host file '/tmp': Is a directory");
	ck_assert_int_eq(hosts_read_file(&h, "/dev/zero", &e), -1);
	ck_assert_str_eq(e.text, "cannot read host file '/dev/zero': File too large");

	write_file(path, "a\0b\n", 4);
	ck_assert_int_eq(hosts_read_file(&h, path, &e), -1);
	ck_assert_int_eq(e.id, E_HOSTFILE_BINARY);
	want = xasprintf("host file '%s' is not a text file", path);
	ck_assert_str_eq(e.text, want);
	free(want);
	unlink(path);
}
END_TEST

/* ---- folding ---- */

static const struct {
	const char *names, *want;
} folds[] = {
	{ "a", "a" },
	{ "a b", "a,b" },
	{ "gpu01 gpu02 gpu03 gpu04 n7", "gpu[01-04],n7" },
	{ "gpu01 gpu02 gpu04", "gpu[01-02,04]" },
	{ "gpu1 gpu3", "gpu[1,3]" },
	{ "gpu1 a gpu2", "gpu1,a,gpu2" },
	{ "gpu8 gpu9 gpu10 gpu11", "gpu[8-11]" },
	{ "gpu099 gpu100", "gpu[099-100]" },
	{ "gpu09 gpu010", "gpu[09,010]" },
	{ "gpu2 gpu1", "gpu[2,1]" },
	{ "gpu1 gpu1", "gpu1,gpu1" },
	{ "r1n1 r1n2 r2n1 r2n2", "r1n[1-2],r2n[1-2]" },
	{ "r1n1 r2n1", "r[1-2]n1" },
	{ "gpu01.lan gpu02.lan", "gpu[01-02].lan" },
	{ "10.0.0.1 10.0.0.2 10.0.1.1", "10.0.0.[1-2],10.0.1.1" },
	{ "fe80::1 fe80::2", "[fe80::1],[fe80::2]" },
	{ "1 2", "[1-2]" },
	{ "a12345678901 a12345678902", "a12345678901,a12345678902" },
};

START_TEST(fold)
{
	char *copy = xstrdup(folds[_i].names), *rest = copy, *word;
	const char *names[16];
	struct hosts h = { 0 };
	struct str s = { 0 };
	size_t n = 0;

	while ((word = strsep(&rest, " ")))
		names[n++] = word;
	hosts_fold(&s, names, n);
	ck_assert_str_eq(str_text(&s), folds[_i].want);
	/* What is folded unfolds to the same names, where none is repeated. */
	ck_assert(!hosts_parse(&h, str_text(&s), NULL));
	for (size_t i = 0; i < h.n; i++)
		ck_assert_str_eq(h.v[i].name, names[i]);
	hosts_free(&h);
	str_free(&s);
	free(copy);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hosts");
	TCase *c = tcase_create("hosts");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, parse_good, 0, COUNT(good));
	tcase_add_loop_test(c, parse_bad, 0, COUNT(bad));
	tcase_add_test(c, hints_of_mistaken_lists);
	tcase_add_test(c, hints_of_words_in_files);
	tcase_add_loop_test(c, text_of_a_list_is_that_list, 0, COUNT(good));
	tcase_add_test(c, many_hosts_take_no_quadratic_time);
	tcase_add_loop_test(c, read_files, 0, COUNT(files));
	tcase_add_test(c, read_no_file);
	tcase_add_loop_test(c, fold, 0, COUNT(folds));
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
