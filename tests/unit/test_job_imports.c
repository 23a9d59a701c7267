/* launcher/job/imports.h: which programs are Python, and what the command that tries
 * their imports answers. */
#include <check.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/job/imports.h"

static char folder[64];

static struct strv words_of(const char *line)
{
	char *words = xstrdup(line), *rest = words, *word;
	struct strv v = { 0 };

	while ((word = strsep(&rest, " ")))
		strv_add(&v, word);
	free(words);
	return v;
}

/* The command, with SCRIPT for the text behind -c; "" for none. */
static void command(struct str *out, const char *line)
{
	struct strv argv = words_of(line), v = { 0 };

	if (imports_command(&v, &argv, folder))
		for (size_t i = 0; i < v.n; i++)
			str_addf(out, "%s%s", i ? " " : "",
				 strchr(v.v[i], '\n') ? "SCRIPT" : v.v[i]);
	else
		ck_assert_uint_eq(v.n, 0);
	strv_free(&argv);
	strv_free(&v);
}

static const struct {
	const char *line, *command;
} rows[] = {
	{ "python train.py", "python -c SCRIPT file train.py" },
	{ "python3.12 t.py --lr 1", "python3.12 -c SCRIPT file t.py --lr 1" },
	{ "/opt/bin/python3 -u -X dev t.py -c x",
	  "/opt/bin/python3 -u -X dev -c SCRIPT file t.py -c x" },
	{ "python -Wignore -O t.py", "python -Wignore -O -c SCRIPT file t.py" },
	{ "python -W ignore t.py", "python -W ignore -c SCRIPT file t.py" },
	{ "python -m a.b -c x", "python -c SCRIPT module a.b -c x" },
	{ "python -um a.b", "python -u -c SCRIPT module a.b" },
	{ "python -ma.b y", "python -c SCRIPT module a.b y" },
	{ "python -c import(x) y", "python -c SCRIPT text import(x) y" },
	{ "python -uc import(x)", "python -u -c SCRIPT text import(x)" },
	{ "env A=1 numactl -l python -u t.py",
	  "env A=1 numactl -l python -u -c SCRIPT file t.py" },
	{ "timeout 10 python t.py", "timeout 10 python -c SCRIPT file t.py" },
	{ "./run.py x", "/usr/bin/env python3 -u -c SCRIPT file ./run.py x" },
	/* none */
	{ "python", "" },
	{ "python -", "" },
	{ "python -u", "" },
	{ "python -c", "" },
	{ "true", "" },
	{ "pythonic t.py", "" },
	{ "env true", "" },
	{ "sh python t.py", "" },
	{ "./run.sh", "" },
	{ "./no-such", "" },
	{ "train.py", "" },
};

START_TEST(commands)
{
	struct str got = { 0 };

	command(&got, rows[_i].line);
	ck_assert_str_eq(str_text(&got), rows[_i].command);
	str_free(&got);
}
END_TEST

/* ---- what it answers ---- */

static void write_file(const char *name, const char *text)
{
	char *path = xasprintf("%s/%s", folder, name);
	FILE *f = fopen(path, "we");

	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
	chmod(path, 0755);
	free(path);
}

static void remove_file(const char *name)
{
	char *path = xasprintf("%s/%s", folder, name);

	unlink(path);
	free(path);
}

static bool is_there(const char *name)
{
	char *path = xasprintf("%s/%s", folder, name);
	const bool there = !access(path, F_OK);

	free(path);
	return there;
}

/* LINE prints ANSWER, and in front of it the file of an NCCL, or nothing. */
static void try_nccl(const char *line, const char *nccl, const char *answer)
{
	struct strv argv = words_of(line), v = { 0 };
	char got[4096], *from, *text;
	size_t n = 0;
	ssize_t more;
	int p[2];
	pid_t pid;

	ck_assert(imports_command(&v, &argv, folder));
	ck_assert(!pipe(p));
	pid = fork();
	if (!pid) {
		dup2(p[1], 1);
		dup2(p[1], 2);
		close(p[0]);
		if (!chdir(folder))
			execvp(v.v[0], v.v);
		_exit(1);
	}
	close(p[1]);
	while (n < sizeof got - 1 &&
	       (more = read(p[0], got + n, sizeof got - 1 - n)) > 0)
		n += (size_t)more;
	got[n] = '\0';
	close(p[0]);
	waitpid(pid, NULL, 0);
	from = memchr(got, '\0', n);
	ck_assert_msg(from != NULL, "no answer: %s", got);
	text = strchr(++from, '\n');
	ck_assert_ptr_nonnull(text);
	*text = '\0';
	ck_assert_str_eq(from, nccl);
	ck_assert_str_eq(text + 1, answer);
	strv_free(&argv);
	strv_free(&v);
}

static void try(const char *line, const char *answer)
{
	try_nccl(line, "", answer);
}

static void setup(void)
{
	snprintf(folder, sizeof folder, "/tmp/test_imports.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	write_file("run.py", "#!/usr/bin/env -S python3 -u\nimport os, sys\n");
	write_file("run.sh", "#!/bin/sh\nexec python t.py\n");
	write_file("beside.py", "x = 1\nprint('noise')\n");
}

static void teardown(void)
{
	static const char *const files[] = { "run.py", "run.sh", "beside.py", "t.py",
					     "ran" };

	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		remove_file(files[i]);
	rmdir(folder);
}

#define PYTHON "/usr/bin/python3 -B "

static const struct {
	const char *text, *answer;
} programs[] = {
	{ "import os\nfrom os import path\n", "+2 imports of t.py" },
	{ "import beside\nraise SystemExit(3)\n", "+1 import of t.py" },
	{ "from beside import x\nfrom beside import y\n",
	  "-t.py:2: ImportError: cannot import name 'y' from 'beside' " },
	{ "import os\nimport nosuch.x\n",
	  "-t.py:2: ModuleNotFoundError: No module named 'nosuch'" },
	{ "import nosuch1\nimport nosuch2\n",
	  "-t.py:1: ModuleNotFoundError: No module named 'nosuch1'; t.py:2: "
	  "ModuleNotFoundError: No module named 'nosuch2'" },
	/* not reached by each run, or expected to fail */
	{ "def f():\n    import nosuch\n", "+0 imports of t.py" },
	{ "try:\n    import nosuch\nexcept ImportError:\n    pass\n",
	  "+0 imports of t.py" },
	{ "if 1:\n    import nosuch\n", "+0 imports of t.py" },
	/* reached by each run */
	{ "try:\n    import nosuch\nfinally:\n    pass\n",
	  "-t.py:2: ModuleNotFoundError: No module named 'nosuch'" },
	{ "if __name__ == '__main__':\n    import nosuch\n",
	  "-t.py:2: ModuleNotFoundError: No module named 'nosuch'" },
	{ "class A:\n    import nosuch\n",
	  "-t.py:2: ModuleNotFoundError: No module named 'nosuch'" },
	{ "import os\nx = (\n", "-t.py:2: '(' was never closed" },
};

START_TEST(answers)
{
	const char *want = programs[_i].answer;
	char *cut;

	write_file("t.py", programs[_i].text);
	if (want[strlen(want) - 1] != ' ') {
		try(PYTHON "t.py", want);
		return;
	}
	cut = xasprintf("%s(%s/beside.py)", want, folder); /* it names the file */
	try(PYTHON "t.py", cut);
	free(cut);
}
END_TEST

START_TEST(other_entries)
{
	try(PYTHON "-c import\tnosuch",
	    "--c:1: ModuleNotFoundError: No module named 'nosuch'");
	try(PYTHON "-m beside", "+0 imports of beside");
	try(PYTHON "-m nosuch", "-nosuch: No module named 'nosuch'");
	try(PYTHON "-m json.tool", "+4 imports of json.tool");
	try(PYTHON "no-such.py", "-no-such.py: [Errno 2] No such file or directory: "
				 "'no-such.py'");
	try("./run.py", "+1 import of ./run.py");
}
END_TEST

/* The job itself would load none of these: python gives it the program's folder, and
 * not the current one. */
START_TEST(nothing_of_the_current_folder_runs)
{
	static const char *const names[] = { "ast.py", "os.py", "importlib.py" };

	for (size_t i = 0; i < 3; i++)
		write_file(names[i], "open('ran', 'w')\n");
	try(PYTHON "/nowhere/no-such.py",
	    "-/nowhere/no-such.py: [Errno 2] No such file or directory: "
	    "'/nowhere/no-such.py'");
	try(PYTHON "-m json.tool", "+4 imports of json.tool");
	try(PYTHON "-c import\tsys", "+1 import of -c");
	ck_assert(!is_there("ran"));
	/* those of the program itself are its own */
	try(PYTHON "-c import\tbeside", "+1 import of -c");
	try(PYTHON "-m beside", "+0 imports of beside");
	for (size_t i = 0; i < 3; i++)
		remove_file(names[i]);
}
END_TEST

/* The wheel in a folder of Python's, unless the user names a file. */
START_TEST(an_nccl_of_its_own)
{
	static const char *const parts[] = { "nvidia", "nvidia/nccl",
					     "nvidia/nccl/lib" };
	char *path = xasprintf("%s/nvidia/nccl/lib/libnccl.so.2", folder);

	for (size_t i = 0; i < 3; i++) {
		char *part = xasprintf("%s/%s", folder, parts[i]);

		mkdir(part, 0755);
		free(part);
	}
	write_file("t.py", "import os\n");
	try_nccl(PYTHON "t.py", "", "+1 import of t.py");
	write_file("nvidia/nccl/lib/libnccl.so.2", "");
	try_nccl(PYTHON "t.py", path, "+1 import of t.py");
	try_nccl("env BERTH_NCCL=x " PYTHON "t.py", "", "+1 import of t.py");
	write_file("t.py", "import nosuch\n");
	try_nccl(PYTHON "t.py", path,
		 "-t.py:1: ModuleNotFoundError: No module named 'nosuch'");
	remove_file("nvidia/nccl/lib/libnccl.so.2");
	for (size_t i = 3; i-- > 0;) {
		char *part = xasprintf("%s/%s", folder, parts[i]);

		rmdir(part);
		free(part);
	}
	free(path);
}
END_TEST

/* Modules that stand for them: the versions are TensorFlow's own, and that of Keras'
 * package. */
START_TEST(versions_of_frameworks)
{
	static const char package[] = "keras-3.9.dist-info";
	char *path = xasprintf("%s/%s", folder, package);

	mkdir(path, 0755);
	write_file("keras-3.9.dist-info/METADATA",
		   "Metadata-Version: 2.1\nName: keras\nVersion: 3.9\n");
	write_file("tensorflow.py", "__version__ = '2.99'\n");
	write_file("t.py", "import os\n");
	try(PYTHON "t.py", "+1 import of t.py");
	write_file("t.py", "import tensorflow as tf\n");
	try(PYTHON "t.py", "+1 import of t.py, TensorFlow 2.99, Keras 3.9");
	write_file("tensorflow.py", "");
	try(PYTHON "t.py", "+1 import of t.py");
	remove_file("tensorflow.py");
	remove_file("keras-3.9.dist-info/METADATA");
	rmdir(path);
	free(path);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("job imports");
	TCase *t = tcase_create("imports");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, commands, 0, sizeof rows / sizeof *rows);
	tcase_add_loop_test(t, answers, 0, sizeof programs / sizeof *programs);
	tcase_add_test(t, other_entries);
	tcase_add_test(t, nothing_of_the_current_folder_runs);
	tcase_add_test(t, an_nccl_of_its_own);
	tcase_add_test(t, versions_of_frameworks);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
