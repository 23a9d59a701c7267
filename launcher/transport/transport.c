#include "launcher/transport/transport.h"

#include "launcher/transport/libssh.h"
#include "launcher/transport/ssh_config.h"

const struct transport *transport_remote(const struct target *t, struct str *why)
{
	const bool agent = getenv("SSH_AUTH_SOCK") != NULL;
	struct ssh_config_facts facts;
	const char *reason;

	if (!libssh_load(&reason)) {
		str_addf(why, "the ssh program is used: %s", reason);
		return &transport_openssh;
	}
	ssh_config_ask(ssh_config_own(), t->name, t->user, agent, &facts);
	if (facts.why.len)
		str_addf(why, "the ssh program is used: libssh does not support %s",
			 facts.why.s);
	str_free(&facts.why);
	return why->len ? &transport_openssh : &transport_ssh;
}
