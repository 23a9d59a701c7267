#include "launcher/cli/build.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/package.h"
#include "common/wire.h"
#include "lib/backend/nccl_places.h"

struct line {
	const char *name;
	bool has;
};

static void build_section(struct str *out, const char *heading, const struct line *v,
			  size_t n)
{
	str_addf(out, "\nAvailable %s:\n", heading);
	for (size_t i = 0; i < n; i++)
		str_addf(out, "    [%c] %s\n", v[i].has ? 'X' : ' ', v[i].name);
}

#define SECTION(out, heading, v) build_section(out, heading, v, sizeof v / sizeof *v)

/* Would libberth find NCCL in a program that runs here, with this environment? */
static bool build_has_nccl(void)
{
	static const char *const roots[] = { NCCL_ROOTS };
	const char *file = getenv("BERTH_NCCL");
	void *lib;
	bool has;

	if (file && *file)
		return !access(file, R_OK);
	lib = dlopen(NCCL_LIBRARY, RTLD_LAZY | RTLD_LOCAL);
	has = lib;
	if (lib)
		dlclose(lib);
	for (size_t i = 0; !has && i < sizeof roots / sizeof *roots; i++) {
		const char *root = getenv(roots[i]);
		char *pattern = xasprintf("%s/" NCCL_OF_WHEEL, root ? root : "");
		glob_t g;

		if (root && *root == '/' && !glob(pattern, 0, NULL, &g)) {
			has = true;
			globfree(&g);
		}
		free(pattern);
	}
	return has;
}

void build_print(struct str *out)
{
	struct package p;
	const bool has = package_find(&p, "", 0, NULL);
	const struct line frameworks[] = {
		{ "TensorFlow", has && package_has(&p, "berth/tensorflow") },
		{ "PyTorch", has && package_has(&p, "berth/torch") },
		{ "MXNet", false },
	};
	const struct line controllers[] = {
		{ "MPI", false },
		{ "Gloo", false },
		{ "Berth", has },
	};
	const struct line operations[] = {
		{ "NCCL", has && build_has_nccl() },
		{ "DDL", false },
		{ "CCL", false },
		{ "MPI", false },
		{ "Gloo", false },
		{ "Berth", has },
	};

	str_addf(out, "Berth v%s:\n", BERTH_VERSION);
	SECTION(out, "Frameworks", frameworks);
	SECTION(out, "Controllers", controllers);
	SECTION(out, "Tensor Operations", operations);
	package_free(&p);
}
