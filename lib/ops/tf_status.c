#include "lib/ops/tf_status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tf_status_fail(TF_OpKernelContext *ctx, TF_Code code, const char *format, ...)
{
	TF_Status *s = TF_NewStatus();
	char text[TF_STATUS_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	TF_SetStatus(s, code, text);
	TF_OpKernelContext_Failure(ctx, s);
	TF_DeleteStatus(s);
}

static TF_Code status_code(berth_result result)
{
	switch (result) {
	case BERTH_MISMATCH:
	case BERTH_STATE:
		return TF_FAILED_PRECONDITION;
	case BERTH_INVALID:
		return TF_INVALID_ARGUMENT;
	case BERTH_MEMORY:
		return TF_RESOURCE_EXHAUSTED;
	default:
		return TF_UNKNOWN;
	}
}

void tf_status_text(char *text, size_t bytes, const char *label, berth_result result)
{
	const struct berth_error *e = berth_last_error();
	const char *said = e && e->result == result && e->text ? e->text : "";

	if (!said[0])
		said = berth_result_text(result);
	if (strstr(said, label))
		snprintf(text, bytes, "libberth: %s", said);
	else
		snprintf(text, bytes, "libberth: %s: %s", label, said);
}

void tf_status_fail_as(TF_OpKernelContext *ctx, const char *label, berth_result result)
{
	char text[TF_STATUS_MAX];

	tf_status_text(text, sizeof text, label, result);
	tf_status_fail(ctx, status_code(result), "%s", text);
}

bool tf_status_end(TF_OpKernelContext *ctx, TF_Status *s)
{
	bool fails = TF_GetCode(s) != TF_OK;

	if (fails)
		TF_OpKernelContext_Failure(ctx, s);
	TF_DeleteStatus(s);
	return fails;
}
