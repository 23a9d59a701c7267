#include "launcher/cli/build.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "common/package.h"
#include "common/wire.h"
#include "launcher/cli/frameworks.h"
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

void build_print(struct str *out)
{
	struct package p;
	const bool has = package_find(&p, "", 0, NULL);
	/* as libberth would find it in a program that runs here */
	const char *file = getenv("BERTH_NCCL");
	void *nccl = nccl_open_found(file && *file ? file : NULL);
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
		{ "NCCL", has && nccl != NULL },
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
	if (has)
		frameworks_print(out, &p);
	package_free(&p);
	if (nccl)
		dlclose(nccl);
}
