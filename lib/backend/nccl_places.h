/* nccl_places.h - where NCCL's library is looked for, and how its version reads: for
 * libberth, and for what runner and its agent say of it. */
#ifndef BERTH_LIB_NCCL_PLACES_H
#define BERTH_LIB_NCCL_PLACES_H

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define NCCL_LIBRARY "libnccl.so.2"
enum { NCCL_OLDEST = 21800 };

/* pip puts the wheel into the environment of Python. */
static inline void *nccl_of_wheel(void)
{
	static const char *const roots[] = { "VIRTUAL_ENV", "CONDA_PREFIX" };
	char pattern[PATH_MAX];
	void *lib = NULL;
	glob_t g;

	for (size_t i = 0; !lib && i < sizeof roots / sizeof *roots; i++) {
		const char *root = getenv(roots[i]);

		snprintf(pattern, sizeof pattern,
			 "%s/lib/python3*/site-packages/nvidia/nccl/lib/" NCCL_LIBRARY,
			 root ? root : "");
		if (!root || *root != '/' || glob(pattern, 0, NULL, &g))
			continue;
		lib = dlopen(g.gl_pathv[0], RTLD_NOW | RTLD_LOCAL);
		globfree(&g);
	}
	return lib;
}

/* FILE, or if it is NULL what the loader finds, or a wheel.  NULL: none; of FILE,
 * dlerror() says why. */
static inline void *nccl_open_found(const char *file)
{
	void *lib = dlopen(file ? file : NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);

	return lib || file ? lib : nccl_of_wheel();
}

/* VERSION, as ncclGetVersion() has it, to TEXT: 21805 is 2.18.5.  Up to 2.8 it has a
 * digit less: 2708 is 2.7.8. */
static inline const char *nccl_version_text(char text[24], int version)
{
	const unsigned v = (unsigned)version, major = v < 10000 ? 1000 : 10000;

	snprintf(text, 24, "%u.%u.%u", v / major, v % major / 100, v % 100);
	return text;
}

#endif
