/* The memory of a struct ssh_config: runner reads one and keeps it. */
#include "launcher/transport/ssh_config.h"

static void ssh_config_free(struct ssh_config *c)
{
	for (size_t i = 0; i < c->n; i++) {
		free(c->v[i].key);
		free(c->v[i].where);
		strv_free(&c->v[i].args);
	}
	free(c->v);
	free(c->home);
	free(c->etc);
	free(c->why);
}
