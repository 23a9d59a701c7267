#include "launcher/cli/lint.h"

#include <errno.h>
#include <unistd.h>

#include "common/package.h"

int lint_exec(const struct strv *files, struct err *e)
{
	struct strv words = { 0 };
	struct package p;
	struct str why = { 0 };
	char *script;

	if (!package_find(&p, "", 0, &why)) {
		err_set(e, E_LINT, str_text(&why));
		err_hint(e, "install berth with its Python package");
	} else {
		script = xasprintf("%s/berth/lint.py", p.python);
		strv_add(&words, "python3");
		strv_add(&words, "-I");
		strv_add(&words, script);
		for (size_t i = 0; i < files->n; i++)
			strv_add(&words, files->v[i]);
		execvp(words.v[0], words.v);
		str_addf(&why, "cannot run python3: %s", strerror(errno));
		err_set(e, E_LINT, str_text(&why));
		err_hint(e, "put a python3 into PATH");
		free(script);
		strv_free(&words);
	}
	package_free(&p);
	str_free(&why);
	return -1;
}
