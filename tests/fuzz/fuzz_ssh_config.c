/* libFuzzer on ssh_config.h: the parts are ~/.ssh/config, a file that it may include,
 * and known_hosts. */
#include "fuzz.h"

#include <sys/socket.h>

#include "tests/unit/ssh_config_free.h"

static void put_part(struct fuzz_input *in, const char *name)
{
	size_t n;
	char *text = fuzz_part(in, &n);

	fuzz_put(name, text, n);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const hosts[] = { "gpu01", "a.b.example", "10.0.0.1",
					     "fe80::1" };
	struct fuzz_input in = { data, size };
	struct ssh_config c = { 0 };

	put_part(&in, ".ssh/config");
	put_part(&in, ".ssh/more");
	put_part(&in, ".ssh/known_hosts");
	ssh_config_read(&c, fuzz_folder(), fuzz_folder());
	for (size_t i = 0; i < 4; i++) {
		const struct ssh_config_given given = { .user = i % 2 ? "me" : NULL,
							.port = i == 3 ? 2222 : 0,
							.agent = i > 1 };
		struct ssh_config_facts f;

		ssh_config_ask(&c, hosts[i], &given, &f);
		if (f.strict > STRICT_ACCEPT_NEW ||
		    (f.family != AF_UNSPEC && f.family != AF_INET &&
		     f.family != AF_INET6))
			abort();
		ssh_config_facts_free(&f);
	}
	ssh_config_free(&c);
	return 0;
}
