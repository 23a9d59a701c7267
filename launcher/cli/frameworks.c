#include "launcher/cli/frameworks.h"

#include "launcher/capture.h"

enum { LIMIT_MS = 10000, TEXT_MAX = 8192 };

/* The words behind it: the folder of the package berth, and libberth's file.  Modules
 * in the current folder may be anybody's, so none is imported. */
static const char script[] =
	"import sys\n"
	"sys.path[:] = sys.argv[1:2] + [p for p in sys.path if p]\n"
	"import os\n"
	"os.environ.setdefault('BERTH_LIBRARY', sys.argv[2])\n"
	"import berth.frameworks\n"
	"berth.frameworks.main()\n";

void frameworks_print(struct str *out, const struct package *p)
{
	const char *const words[] = { "python3", "-c",       script,
				      p->python, p->library, NULL };
	const struct capture c = {
		.words = words, .in = -1, .limit_ms = LIMIT_MS, .most_bytes = TEXT_MAX
	};
	struct str said = { 0 };
	const char *why = capture_run(&said, &c);

	if (why)
		str_addf(out, "\nNot known: TensorFlow and Keras of python3: %s\n",
			 why);
	else
		str_add(out, str_text(&said));
	str_free(&said);
}
