/* real_nccl.c - a sum of an array of a GPU's by the library and a real NCCL, which
 * BERTH_NCCL names, where there is no GPU (tests/cli/wheels.bats):
 *
 *     build/helpers/real_nccl [driver]
 *
 * It prints why there is no sum; with "driver" also which NCCL it is.  "driver": the
 * library is given one that says yes to all, so that it loads NCCL, and calls it.  NCCL
 * does not find that driver.  It exits with 0 if the sum was refused. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "lib/backend/nccl.h"
#include "lib/berth.h"

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
int cuGetProcAddress_v2(const char *name, void **call, int version, uint64_t flags,
			int *status);

static bool has_driver;

/* Whatever the machine has, the library gets this program as its libcuda, or none. */
void *__wrap_dlopen(const char *name, int flags)
{
	if (name && !strcmp(name, "libcuda.so.1"))
		name = has_driver ? NULL : "libnone.so";
	return __real_dlopen(name, flags);
}

static int do_nothing(void)
{
	return 0;
}

static int give_context(void **context, int device)
{
	(void)device;
	*context = &has_driver;
	return 0;
}

int cuGetProcAddress_v2(const char *name, void **call, int version, uint64_t flags,
			int *status)
{
	(void)version;
	(void)flags;
	(void)status;
	*call = strcmp(name, "cuDevicePrimaryCtxRetain")
			? (void *)(uintptr_t)do_nothing
			: (void *)(uintptr_t)give_context;
	return 0;
}

int main(int argc, char **argv)
{
	static float array[4];
	struct berth_desc d =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32, .in = array,
			   .out = array, .count = 4, .memory = BERTH_CUDA,
			   .stream = BERTH_HOST_STREAM);
	char nccl[DEVICE_WHY_BYTES];
	berth_result rc;

	has_driver = argc > 1 && !strcmp(argv[1], "driver");
	rc = berth_init(NULL);
	rc = rc ? rc : berth_run(&d, -1, NULL);
	printf("%s\n", berth_last_error()->text);
	if (has_driver) {
		nccl_backend.tells(nccl);
		printf("%s\n", nccl);
	}
	berth_shutdown();
	return rc != BERTH_UNSUPPORTED;
}
