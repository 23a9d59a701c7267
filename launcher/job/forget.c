#include "launcher/job/forget.h"

void forget_rank(struct rank *r)
{
	free(r->gpu);
	free(r->gpu_name);
	free(r->cpus);
	free(r->bound);
	free(r->numa);
	free(r->visible);
	free(r->why);
	free(r->shared);
	free(r->text);
	free(r->hint);
	free(r->hung_text);
	*r = (struct rank){ 0 };
}

void forget_host(struct host_run *run)
{
	free(run->idle);
	free(run->drawing);
	free(run->certificate);
	free(run->ports);
	free(run->cannot_text);
	free(run->cannot_hint);
	*run = (struct host_run){ .phase = run->phase,
				  .unconfirmed = run->unconfirmed,
				  .unkillable = run->unkillable,
				  .unnamed = run->unnamed,
				  .dismissed = run->dismissed,
				  .losses = run->losses,
				  .blocked_ms = run->blocked_ms };
}
