#include "launcher/transport/transport.h"

#include "launcher/transport/libssh.h"
#include "launcher/transport/ssh_config.h"

const struct transport *transport_remote(const struct transport_setup *setup,
					 const struct target *t, struct str *why)
{
	const struct ssh_config_given given = { .user = t->user,
						.identity = setup->identity,
						.port = transport_port(setup, t),
						.agent = getenv("SSH_AUTH_SOCK") !=
							 NULL };
	struct ssh_config_facts facts;
	const char *reason;

	if (!libssh_load(&reason)) {
		str_addf(why, "the ssh program is used: %s", reason);
		return &transport_openssh;
	}
	ssh_config_ask(ssh_config_own(), t->name, &given, &facts);
	if (facts.why.len)
		str_addf(why, "the ssh program is used: libssh does not support %s",
			 facts.why.s);
	ssh_config_facts_free(&facts);
	return why->len ? &transport_openssh : &transport_ssh;
}
