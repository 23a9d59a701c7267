#include "launcher/transport/ssh_said.h"

#include <string.h>

#include "launcher/transport/agent_install.h"
#include "launcher/transport/lookup.h"

#define BAD_PERMISSIONS "bad permissions" /* of a private key */

/* The most precise text first. */
static const struct {
	const char *text;
	enum err_id id;
	bool again;
} failures[] = {
	{ "has changed and you have requested strict", E_SSH_HOSTKEY_CHANGED, false },
	{ "IDENTIFICATION HAS CHANGED", E_SSH_HOSTKEY_CHANGED, false },
	{ "Host key verification failed", E_SSH_HOSTKEY, false },
	{ BAD_PERMISSIONS, E_SSH_AUTH, false },
	{ "Permission denied", E_SSH_AUTH, false },
	{ "Too many authentication failures", E_SSH_AUTH, false },
	{ "Could not resolve hostname", E_SSH_RESOLVE, false },
	{ "Connection refused", E_SSH_CONNECT, true },
	{ "Connection reset", E_SSH_CONNECT, true },
	{ "Connection closed", E_SSH_CONNECT, true },
	{ "kex_exchange_identification", E_SSH_CONNECT, true },
	{ "No route to host", E_SSH_CONNECT, true },
	{ "Network is unreachable", E_SSH_CONNECT, true },
	{ "Connection timed out", E_SSH_CONNECT, true },
};

struct ssh_said ssh_said_read(const char *said)
{
	struct ssh_said s = { 0 };
	const char *hit = NULL;
	size_t i;

	for (i = 0; !hit && i < sizeof failures / sizeof *failures; i++)
		hit = strstr(said, failures[i].text);
	if (!hit) {
		s.line = agent_install_last_line(said);
		return s;
	}
	i--;
	while (hit > said && hit[-1] != '\n')
		hit--;
	s.id = failures[i].id;
	s.again = failures[i].again;
	s.private = !strcmp(failures[i].text, BAD_PERMISSIONS);
	s.line = agent_install_quote(hit, strlen(hit));
	/* ssh looks it up again: its configuration may name another host, or a proxy */
	if (s.id == E_SSH_RESOLVE)
		s.again = lookup_may_come(s.line);
	return s;
}

bool ssh_said_changed(const char *said)
{
	return strstr(said, "IDENTIFICATION HAS CHANGED") != NULL;
}

bool ssh_said_revoked(const char *said)
{
	return strstr(said, "REVOKED HOST KEY") != NULL;
}
