#include "launcher/transport/ssh_config_value.h"

#include <strings.h>
#include <sys/socket.h>

#include "common/str.h"

bool ssh_config_yes(const char *v)
{
	return !strcasecmp(v, "yes") || !strcasecmp(v, "true");
}

bool ssh_config_no(const char *v)
{
	return !strcasecmp(v, "no") || !strcasecmp(v, "false");
}

enum test {
	IF_SET,
	IF_NOT_NO,
	IF_NOT_YES,
	IF_ODD_ALGORITHMS,
	IF_NOT_PUBLICKEY,
	IF_NOT_STRICT, /* no value that ssh takes */
	IF_NOT_PORT,
	IF_NOT_FAMILY,
	IF_AGENT,
	IF_TOKEN
};

/* Keywords that libssh ignores and this program cannot do for it; and values that ssh
 * may not take. */
static const struct {
	const char *key;
	enum test test;
} beyond[] = {
	{ "addressfamily", IF_NOT_FAMILY },
	{ "bindaddress", IF_SET },
	{ "bindinterface", IF_SET },
	{ "canonicalizehostname", IF_NOT_NO },
	{ "certificatefile", IF_SET },
	{ "checkhostip", IF_NOT_NO },
	{ "hostbasedauthentication", IF_NOT_NO },
	{ "hostkeyalias", IF_SET },
	{ "hostkeyalgorithms", IF_ODD_ALGORITHMS },
	{ "identitiesonly", IF_AGENT }, /* without an agent it changes nothing */
	{ "knownhostscommand", IF_SET },
	{ "nohostauthenticationforlocalhost", IF_NOT_NO },
	{ "pkcs11provider", IF_SET },
	{ "port", IF_NOT_PORT },
	{ "preferredauthentications", IF_NOT_PUBLICKEY },
	{ "proxyusefdpass", IF_NOT_NO },
	{ "pubkeyauthentication", IF_NOT_YES },
	{ "requiredrsasize", IF_SET },
	{ "revokedhostkeys", IF_SET },
	{ "stricthostkeychecking", IF_NOT_STRICT },
	{ "updatehostkeys", IF_NOT_NO },
	{ "user", IF_TOKEN },
	{ "verifyhostkeydns", IF_NOT_NO },
};

int ssh_config_strict(const char *v)
{
	static const struct {
		const char *value;
		enum ssh_strict strict;
	} values[] = {
		{ "yes", STRICT_YES },
		{ "true", STRICT_YES },
		{ "ask", STRICT_YES },
		{ "no", STRICT_NO },
		{ "false", STRICT_NO },
		{ "off", STRICT_NO },
		{ "accept-new", STRICT_ACCEPT_NEW },
	};

	for (size_t i = 0; i < sizeof values / sizeof *values; i++)
		if (!strcasecmp(v, values[i].value))
			return (int)values[i].strict;
	return -1;
}

/* Names of host key algorithms that ssh and libssh know, perhaps behind a '+'.  What a
 * '^', a '-' or a pattern makes of them depends on ssh's own list. */
static bool is_plain_algorithms(const char *v)
{
	static const char *const known[] = { "ssh-ed25519",
					     "ecdsa-sha2-nistp256",
					     "ecdsa-sha2-nistp384",
					     "ecdsa-sha2-nistp521",
					     "rsa-sha2-512",
					     "rsa-sha2-256",
					     "ssh-rsa" };
	bool more = true, found = true;

	for (v += *v == '+'; more && found; v++) {
		const size_t n = strcspn(v, ",");

		found = false;
		for (size_t i = 0; i < sizeof known / sizeof *known; i++)
			found |= strlen(known[i]) == n && !strncmp(v, known[i], n);
		v += n;
		more = *v == ',';
	}
	return found;
}

int ssh_config_family(const char *v)
{
	return !strcasecmp(v, "inet")    ? AF_INET
	       : !strcasecmp(v, "inet6") ? AF_INET6
	       : !strcasecmp(v, "any")   ? AF_UNSPEC
					 : -1;
}

static bool value_fails(enum test test, const char *v, bool agent)
{
	long port;

	switch (test) {
	case IF_SET:
		return strcasecmp(v, "none") != 0;
	case IF_NOT_NO:
		return !ssh_config_no(v);
	case IF_NOT_YES:
		return !ssh_config_yes(v);
	case IF_ODD_ALGORITHMS:
		return !is_plain_algorithms(v);
	case IF_NOT_STRICT:
		return ssh_config_strict(v) < 0;
	case IF_NOT_PUBLICKEY:
		return strncmp(v, "publickey", 9) != 0;
	case IF_NOT_PORT:
		return str_to_long(&port, v, 1, 65535, NULL) != 0;
	case IF_NOT_FAMILY:
		return ssh_config_family(v) < 0;
	case IF_AGENT:
		return agent && !ssh_config_no(v);
	case IF_TOKEN:
		return strchr(v, '%') != NULL;
	}
	return true;
}

bool ssh_config_beyond(const char *key, const char *v, bool agent)
{
	for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
		if (!strcmp(key, beyond[i].key))
			return value_fails(beyond[i].test, v, agent);
	return false;
}
