/* device.h - arrays of a random program in the memory of a stand-in device:
 * there as here, guards and all, and back when the operation is done. */
#ifndef BERTH_TESTS_PROGRAM_DEVICE_H
#define BERTH_TESTS_PROGRAM_DEVICE_H

#include "tests/helpers/programs/operation.h"
#include "tests/standin/standin.h"

/* This thread's work on the device. */
static _Thread_local void *device_stream;

static void begin_device(void)
{
	if (!with_devices || device_stream)
		return;
	standin_enter();
	cuStreamCreate(&device_stream, CU_STREAM_NON_BLOCKING);
}

static void end_device(void)
{
	if (!device_stream)
		return;
	cuStreamSynchronize(device_stream);
	cuStreamDestroy(device_stream);
	device_stream = NULL;
}

static void *on_device(const struct block *b, const void *p)
{
	return (unsigned char *)b->device + ((const unsigned char *)p - b->all);
}

/* All of B, with its guards. */
static void put_block(struct block *b, size_t bytes)
{
	begin_device();
	b->device = standin_alloc(bytes);
	standin_copy(b->device, b->all, bytes, device_stream);
	b->device_bytes = bytes;
}

static void get_block(const struct block *b, void *stream)
{
	if (b->device)
		standin_copy(b->all, b->device, b->device_bytes, stream);
}

/* What the library's thread was asked for. */
static void *give_device_memory(void *ctx, uint64_t bytes)
{
	struct operation *o = ctx;

	standin_enter();
	o->made_there = standin_alloc(bytes);
	o->made_bytes = bytes;
	return o->made_there;
}

/* D's arrays are there: what there is on the host is put there, and STREAM or READY
 * says when it is. */
static void describe_device(struct operation *o)
{
	struct berth_desc *d = &o->d;

	d->memory = BERTH_CUDA;
	if (o->in.all)
		put_block(&o->in, o->in.whole);
	if (o->out.all)
		put_block(&o->out, o->out.whole);
	if (d->in)
		d->in = on_device(&o->in, d->in);
	if (d->out)
		d->out = on_device(o->in_place ? &o->in : &o->out, d->out);
	if ((d->in || d->out) && own(o->id, 160, 3) == 0)
		d->memory = BERTH_ANYWHERE;
	begin_device();
	switch (own(o->id, 161, 4)) {
	case 0:
		cuStreamSynchronize(device_stream);
		d->stream = BERTH_HOST_STREAM;
		break;
	case 1:
		cuEventCreate(&o->ready, 0);
		cuEventRecord(o->ready, device_stream);
		d->ready = o->ready;
		d->stream = own(o->id, 162, 2) ? BERTH_HOST_STREAM : device_stream;
		break;
	default:
		d->stream = device_stream;
	}
}

/* It is done, as STREAM sees it: back to the host. */
static void fetch(struct operation *o, void *stream)
{
	if (!o->is_device || o->is_here)
		return;
	begin_device();
	get_block(&o->in, stream);
	get_block(&o->out, stream);
	if (o->made_there) {
		o->made = malloc(o->made_bytes + 1);
		standin_copy(o->made, o->made_there, o->made_bytes, stream);
	}
	cuStreamSynchronize(stream);
	o->is_here = true;
}

static void release_device(struct operation *o)
{
	void *const there[] = { o->in.device, o->out.device, o->made_there };

	if (o->ready)
		cuEventDestroy(o->ready);
	for (size_t i = 0; i < sizeof there / sizeof *there; i++)
		if (there[i])
			cuMemFree((uintptr_t)there[i]);
}

#endif
