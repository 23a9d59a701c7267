#include "launcher/transport/libssh.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/banned.h"

#ifdef HAVE_LIBSSH
static struct libssh lib;
static const char *reason = "not loaded";

const struct libssh *libssh_load(const char **why)
{
	static bool tried;
	void *library;

	if (!tried) {
		tried = true;
		/* lazily: binding each symbol of libcrypto and Kerberos costs 1 ms */
		library = dlopen("libssh.so.4", RTLD_LAZY | RTLD_LOCAL);
		reason = library ? NULL : "libssh.so.4 is not installed";
#define X(name)                                                                        \
	if (library && !(*(void **)&lib.name = dlsym(library, #name)))                 \
		reason = "libssh.so.4 here is too old";
		LIBSSH_FUNCTIONS(X)
#undef X
	}
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
