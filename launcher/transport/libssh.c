#include "launcher/transport/libssh.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/banned.h"

#ifdef HAVE_LIBSSH
static struct libssh lib;
static const char *reason = "not loaded";

static void *find(void *library, const char *name)
{
	void *hit = dlsym(library, name);

	if (!hit)
		reason = "libssh.so.4 here is too old";
	return hit;
}

static void load(void)
{
	/* lazily: binding every symbol of libcrypto and Kerberos now costs 1 ms */
	void *library = dlopen("libssh.so.4", RTLD_LAZY | RTLD_LOCAL);

	if (!library) {
		reason = "libssh.so.4 is not installed";
		return;
	}
	reason = NULL;
#define X(name) *(void **)&lib.name = find(library, #name);
	LIBSSH_FUNCTIONS(X)
#undef X
}

const struct libssh *libssh_load(const char **why)
{
	static bool tried;

	if (!tried)
		load();
	tried = true;
	*why = reason;
	return reason ? NULL : &lib;
}
#else
const struct libssh *libssh_load(const char **why)
{
	*why = "runner was built without libssh";
	return NULL;
}
#endif
