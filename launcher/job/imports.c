#include "launcher/job/imports.h"

#include <ctype.h>

#include "common/file.h"

/* The words behind it: "file", "module" or "text", then the program's own argv.  Its
 * own imports never look into the current folder, in which others may have put modules;
 * the program's do if python itself would look there. */
static const char script[] =
	"import sys\n"
	"here = [p for p in sys.path[:1] if not p]\n"
	"del sys.path[:len(here)]\n"
	"import ast, importlib.util, os\n"
	"out = os.dup(1)\n"
	"os.dup2(2, 1)\n"
	"how, what = sys.argv[1:3]\n"
	"sys.argv = sys.argv[2:]\n"
	/* the file of an NCCL that is loaded, or that torch would load */
	"def nccl():\n"
	"    with open('/proc/self/maps') as f:\n"
	"        files = [m.split(None, 5)[-1].strip() for m in f if '/libnccl.so' in "
	"m]\n"
	"    if not os.environ.get('BERTH_NCCL'):\n"
	"        files += [os.path.abspath(os.path.join(str(p), 'nvidia/nccl/lib',\n"
	"            'libnccl.so.2')) for p in sys.path]\n"
	"    return next((f for f in files if os.path.isfile(f)), '')\n"
	"def tell(text):\n"
	"    try: file = nccl()\n"
	"    except Exception: file = ''\n"
	"    os.write(out, b'\\0' + os.fsencode(file) + b'\\n' +\n"
	"        text.encode('utf-8', 'replace')[:2000] + b'\\0')\n"
	"    os._exit(0)\n"
	"package = None\n"
	"try:\n"
	"    if how == 'file':\n"
	"        with open(what, 'rb') as f: text = f.read()\n"
	"        sys.path[:0] = [os.path.dirname(os.path.realpath(what)) for p in "
	"here]\n"
	"    elif how == 'module':\n"
	"        sys.path[:0] = here\n"
	"        spec = importlib.util.find_spec(what)\n"
	"        if spec and spec.submodule_search_locations is not None:\n"
	"            spec = importlib.util.find_spec(what + '.__main__')\n"
	"        if not spec or not spec.origin:\n"
	"            raise ImportError('No module named %r' % what)\n"
	"        package = spec.parent\n"
	"        with open(spec.origin, 'rb') as f: text = f.read()\n"
	"    else:\n"
	"        sys.path[:0] = here\n"
	"        text = what\n"
	"        what = sys.argv[0] = '-c'\n"
	"    tree = ast.parse(text)\n"
	"except SyntaxError as e:\n"
	"    tell('-%s:%s: %s' % (what, e.lineno, e.msg))\n"
	"except BaseException as e:\n"
	"    tell('-%s: %s' % (what, e))\n"
	"def expects(t):\n"
	"    for h in t.handlers:\n"
	"        if h.type is None: return True\n"
	"        for n in ast.walk(h.type):\n"
	"            if getattr(n, 'id', getattr(n, 'attr', '')) in ('ImportError',\n"
	"                    'ModuleNotFoundError', 'Exception', 'BaseException'): "
	"return True\n"
	"    return False\n"
	"def imports(body):\n"
	"    for n in body:\n"
	"        if isinstance(n, (ast.Import, ast.ImportFrom)): yield n\n"
	"        elif isinstance(n, ast.If):\n"
	"            if '__name__' in ast.dump(n.test): yield from imports(n.body)\n"
	"        elif isinstance(n, ast.Try):\n"
	"            if not expects(n): yield from imports(n.body)\n"
	"            yield from imports(n.finalbody)\n"
	"        elif isinstance(n, (ast.With, ast.ClassDef)): yield from "
	"imports(n.body)\n"
	"n, failed, space = 0, [], {'__name__': '__main__', '__package__': package}\n"
	"for i in imports(tree.body):\n"
	"    n += 1\n"
	"    try: exec(compile(ast.Module([i], []), what, 'exec'), space)\n"
	"    except BaseException as e:\n"
	"        failed.append('%s:%d: %s: %s' % (what, i.lineno, type(e).__name__, "
	"e))\n"
	"berth = sys.modules.get('berth.library')\n"
	"try: berth and berth.get()\n" /* libberth: berth loads it when it is used */
	"except BaseException as e:\n"
	"    failed.append('%s: %s' % (what, e))\n"
	"if failed: tell('-' + '; '.join(failed[:3]))\n"
	/* the versions of TensorFlow and Keras, and how berth.tensorflow works */
	"def found():\n"
	"    tf, parts = sys.modules.get('tensorflow'), ['']\n"
	"    if tf: parts.append('TensorFlow ' + tf.__version__)\n"
	"    if 'berth.tensorflow' in sys.modules:\n"
	"        why = sys.modules['berth.frameworks'].unused\n"
	"        parts[-1] += ' without libberth_tf.so (%s)' % why if why else ' with "
	"libberth_tf.so'\n"
	"    if tf or 'keras' in sys.modules:\n"
	"        from importlib import metadata\n"
	"        for name in 'Keras', 'tf-keras':\n"
	"            try: parts.append(name + ' ' + metadata.version(name))\n"
	"            except metadata.PackageNotFoundError: pass\n"
	"    return ', '.join(parts)\n"
	"try: known = found()\n"
	"except Exception: known = ''\n"
	"tell('+%d import%s of %s%s' % (n, '' if n == 1 else 's', what, known))\n";

static const char *base_of(const char *word)
{
	const char *slash = strrchr(word, '/');

	return slash ? slash + 1 : word;
}

/* "python", "python3", "python3.12" */
static bool is_python(const char *word)
{
	const char *name = base_of(word);

	return !strncmp(name, "python", 6) &&
	       !name[6 + strspn(name + 6, "0123456789.")];
}

/* Programs that run the command behind their own options, as numactl does. */
static bool is_wrapper(const char *word)
{
	static const char *const names[] = { "env",       "nice",       "nohup",
					     "numactl",   "setsid",     "stdbuf",
					     "taskset",   "timeout",    "uv",
					     "apptainer", "singularity" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(base_of(word), names[i]))
			return true;
	return false;
}

/* A program is given as -c TEXT, -m MODULE or a file. */
struct entry {
	const char *how, *what;
};

/* Python's options from ARGV[I] on to OUT, without -c and -m, which go to ENTRY. */
static size_t copy_options(struct strv *out, const struct strv *argv, size_t i,
			   struct entry *entry)
{
	for (; i < argv->n && argv->v[i][0] == '-' && argv->v[i][1]; i++) {
		const char *word = argv->v[i];
		size_t n = 1 + strcspn(word + 1, "cmWX-");
		const char *value = !word[n]          ? NULL
				    : word[n + 1]     ? word + n + 1
				    : i + 1 < argv->n ? argv->v[i + 1]
						      : NULL;

		if (value && (word[n] == 'c' || word[n] == 'm')) {
			if (n > 1)
				strv_take(out, xstrndup(word, n));
			entry->how = word[n] == 'c' ? "text" : "module";
			entry->what = value;
			return i + 1 + !word[n + 1];
		}
		strv_add(out, word);
		if (value && strchr("WX", word[n]) && !word[n + 1])
			strv_add(out, argv->v[++i]);
	}
	return i;
}

/* ARGV[AT] is python. */
static bool follow_python(struct strv *out, const struct strv *argv, size_t at)
{
	struct entry entry = { .how = "file" };
	size_t i;

	for (i = 0; i <= at; i++)
		strv_add(out, argv->v[i]);
	i = copy_options(out, argv, at + 1, &entry);
	if (!entry.what && (i == argv->n || !strcmp(argv->v[i], "-"))) {
		strv_free(out); /* it reads its program from stdin */
		return false;
	}
	strv_add(out, "-c");
	strv_add(out, script);
	strv_add(out, entry.how);
	if (entry.what)
		strv_add(out, entry.what);
	for (; i < argv->n; i++)
		strv_add(out, argv->v[i]);
	return true;
}

/* The interpreter in the first line of a script, if it is python, and the whole ARGV
 * behind it. */
static bool follow_script(struct strv *out, const struct strv *argv, const char *wdir)
{
	char line[256] = "", *path, *rest = line, *word;
	bool python = false;

	path = wdir && *argv->v[0] != '/' ? xasprintf("%s/%s", wdir, argv->v[0])
					  : xstrdup(argv->v[0]);
	file_start(path, line, sizeof line);
	free(path);
	line[strcspn(line, "\r\n")] = '\0';
	if (strncmp(line, "#!", 2))
		return false;
	rest += 2;
	while ((word = strsep(&rest, " \t"))) {
		python |= is_python(word);
		if (*word && strcmp(word, "-S"))
			strv_add(out, word);
	}
	strv_add(out, "-c");
	strv_add(out, script);
	strv_add(out, "file");
	for (size_t i = 0; i < argv->n; i++)
		strv_add(out, argv->v[i]);
	if (!python)
		strv_free(out);
	return python;
}

bool imports_command(struct strv *out, const struct strv *argv, const char *wdir)
{
	size_t i = 0;

	if (!argv->n)
		return false;
	if (is_wrapper(argv->v[0]))
		while (i < argv->n && !is_python(argv->v[i]))
			i++;
	if (i < argv->n && is_python(argv->v[i]))
		return follow_python(out, argv, i);
	return strchr(argv->v[0], '/') && follow_script(out, argv, wdir);
}
