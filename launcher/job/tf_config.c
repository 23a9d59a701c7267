#include "launcher/job/tf_config.h"

#include <stdlib.h>
#include <string.h>

enum {
	VARIABLE_BYTES = 128 << 10, /* Linux's MAX_ARG_STRLEN: of name and value */
	REST_BYTES = 128            /* of TF_CONFIG, beside the cluster */
};

static const char *const role_names[] = { TF_ROLE_NAMES }; /* from TF_OUT on */

/* The ranks of ROLE, as a member of the cluster; nothing if there are none. */
static uint32_t add_role(struct str *out, struct tf_rank *rank, uint32_t np,
			 enum tf_role role)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < np; i++) {
		const struct tf_rank *r = &rank[i];

		if (r->role != role)
			continue;
		if (n)
			str_add(out, ",");
		else
			str_addf(out, "%s\"%s\":[", out->len > 1 ? "," : "",
				 role_names[role - TF_OUT]);
		str_addf(out, strchr(r->address, ':') ? "\"[%s]:%u\"" : "\"%s:%u\"",
			 r->address, r->port);
		rank[i].task = n++;
	}
	if (n)
		str_add(out, "]");
	return n;
}

int tf_config_cluster(struct str *out, struct tf_rank *rank, uint32_t np, struct err *e)
{
	static const enum tf_role in_cluster[] = { TF_CHIEF, TF_WORKER, TF_PS };
	struct str json = { 0 }, evaluator = { 0 };
	uint32_t chiefs = 0, n;
	int rc = 0;

	str_add(&json, "{");
	for (size_t i = 0; i < sizeof in_cluster / sizeof *in_cluster; i++) {
		n = add_role(&json, rank, np, in_cluster[i]);
		chiefs += in_cluster[i] == TF_CHIEF ? n : 0;
	}
	str_add(&json, "}");
	n = add_role(&evaluator, rank, np, TF_EVALUATOR);
	str_free(&evaluator);
	if (chiefs > 1 || n > 1) {
		char *text =
			xasprintf("%u ranks have the role %s", chiefs > 1 ? chiefs : n,
				  chiefs > 1 ? "chief" : "evaluator");

		rc = err_set(e, E_TF_ROLES, text);
		free(text);
	} else if (json.len > VARIABLE_BYTES - REST_BYTES) {
		rc = err_set(e, E_TF_LONG, np, VARIABLE_BYTES);
	} else {
		str_add(out, str_text(&json));
	}
	str_free(&json);
	return rc;
}
