#include "agent/pmi/pmi1_names.h"

#include <stdlib.h>
#include <string.h>

#include "common/job.h"
#include "common/str.h"

static bool is_port(const void *bytes, size_t n)
{
	const unsigned char *port = bytes;

	for (size_t i = 0; i < n; i++)
		if (port[i] <= ' ' || port[i] == '\\' || port[i] == 127)
			return false;
	return n && n < PMI1_VALUE_BYTES;
}

bool pmi1_name_ask(struct buf *out, uint32_t epoch, uint32_t rank, uint32_t id,
		   const struct pmi1_line *l)
{
	const uint32_t size = (uint32_t)strlen(l->port);
	const bool publishes = l->command == PMI1_PUBLISH_NAME;
	char *key;
	wire_strv keys;

	if (!*l->service || (publishes && !is_port(l->port, size)))
		return false;
	key = xasprintf("pmi1:%s", l->service);
	keys = (wire_strv){ (const char *const *)&key, 1 };
	if (publishes)
		wire_pack_publish(
			out, &(struct wire_publish){ .epoch = epoch,
						     .rank = rank,
						     .id = id,
						     .keys = keys,
						     .sizes = { &size, 1 },
						     .values = { l->port, size } });
	else if (l->command == PMI1_LOOKUP_NAME)
		wire_pack_lookup(out, &(struct wire_lookup){ .epoch = epoch,
							     .rank = rank,
							     .id = id,
							     .keys = keys });
	else
		wire_pack_unpublish(out,
				    &(struct wire_unpublish){ epoch, rank, id, keys });
	free(key);
	return true;
}

static const char *why_not(const struct wire_found *m)
{
	if (!m)
		return "invalid_service_or_port";
	switch (m->status) {
	case FOUND_NONE:
		return "service_not_found";
	case FOUND_DUPLICATE:
		return "key_already_present";
	case FOUND_NO_ROOM:
		return "no_room";
	default:
		return "failed";
	}
}

char *pmi1_name_answer(enum pmi1_command command, const struct wire_found *m)
{
	static const char *const names[] = { [PMI1_PUBLISH_NAME] = "publish",
					     [PMI1_LOOKUP_NAME] = "lookup",
					     [PMI1_UNPUBLISH_NAME] = "unpublish" };
	const bool looks_up = command == PMI1_LOOKUP_NAME;

	if (!m || m->status != FOUND_ALL ||
	    (looks_up && !is_port(m->values.p, m->values.n)))
		return xasprintf("cmd=%s_result info=fail rc=-1 msg=%s", names[command],
				 why_not(m));
	if (!looks_up)
		return xasprintf("cmd=%s_result info=ok rc=0 msg=success",
				 names[command]);
	return xasprintf("cmd=lookup_result info=ok rc=0 msg=success port=%.*s",
			 (int)m->values.n, (const char *)m->values.p);
}
