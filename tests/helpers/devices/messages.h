/* messages.h - messages of a device's memory (lib/core/bounce.h): in their order, of
 * known and unknown sizes, behind streams that take their time.  For devices.c. */
#ifndef BERTH_TESTS_DEVICES_MESSAGES_H
#define BERTH_TESTS_DEVICES_MESSAGES_H

static struct berth_desc message(berth_kind kind, void *p, int peer, uint64_t tag)
{
	struct berth_desc d =
		BERTH_DESC(.kind = kind, .type = BERTH_F32, .root = peer,
			   .count = COUNT, .tag = tag, .memory = BERTH_ANYWHERE);

	*(kind == BERTH_SEND ? (void **)&d.in : &d.out) = p;
	return d;
}

static struct berth_desc message_there(berth_kind kind, void *p, int peer, uint64_t tag)
{
	struct berth_desc d = message(kind, p, peer, tag);

	d.memory = BERTH_CUDA;
	d.stream = stream;
	return d;
}

static void check_values(const float *here, int of, int tensor, int step)
{
	for (int i = 0; i < COUNT; i++)
		CHECK(here[i] == value(of, tensor, step, i),
		      "tensor %d step %d element %d: %g", tensor, step, i,
		      (double)here[i]);
}

static void check_there(const void *there, int of, int tensor, int step)
{
	float *here;

	cuMemHostAlloc((void **)&here, BYTES, 0);
	standin_copy(here, there, BYTES, stream);
	cuStreamSynchronize(stream);
	check_values(here, of, tensor, step);
	cuMemFreeHost(here);
}

/* Each rank to the next one, and to itself. */
static void send_around(int step, void *from, void *to, void *own)
{
	const int next = (rank + 1) % size, before = (rank + size - 1) % size;
	struct berth_desc d[4] = { message_there(BERTH_SEND, from, next, 1),
				   message_there(BERTH_RECV, to, before, 1),
				   message_there(BERTH_RECV, own, BERTH_ANY, 2),
				   message_there(BERTH_SEND, from, rank, 2) };
	berth_request *r;
	int whose = -1;

	d[2].from = &whose;
	CHECK(!berth_submit(d, 4, &r), "submit");
	CHECK(!berth_wait_stream(r, stream, -1), "wait_stream");
	CHECK(whose == rank, "from %d", whose);
	check_there(to, before, 0, step);
	check_there(own, rank, 0, step);
	CHECK(!berth_wait(r, -1), "wait");
}

/* One of the host's behind one of a device, whose stream takes its time; one with
 * another tag in front of both. */
static void keep_order(int step, void *there, float *here)
{
	struct berth_desc d[3];
	berth_request *r;

	if (rank == 0) {
		put(there, here, 0, step);
		pause_stream(20);
		for (int i = 0; i < COUNT; i++)
			here[COUNT + i] = value(rank, 1, step, i);
		d[0] = message_there(BERTH_SEND, there, 1, 3);
		d[1] = message(BERTH_SEND, here + COUNT, 1, 3);
		d[2] = message(BERTH_SEND, here + COUNT, 1, 4);
		CHECK(!berth_submit(d, 3, &r) && !berth_wait(r, -1), "sends");
	} else if (rank == 1) {
		d[0] = message(BERTH_RECV, here, 0, 4);
		CHECK(!berth_run(d, -1, NULL), "the last");
		check_values(here, 0, 1, step);
		d[0] = message(BERTH_RECV, here, 0, 3);
		CHECK(!berth_run(d, -1, NULL), "the first");
		check_values(here, 0, 0, step);
		d[0] = message(BERTH_RECV, here, 0, 3);
		CHECK(!berth_run(d, -1, NULL), "the second");
		check_values(here, 0, 1, step);
	}
}

static void *give_room(void *ctx, uint64_t bytes)
{
	standin_enter();
	return *(void **)ctx = standin_alloc(bytes);
}

/* From the host to a device, which hears the size with the message. */
static void ask_for_room(int step, float *here)
{
	struct berth_desc d = message_there(BERTH_RECV, NULL, 0, 5);
	uint64_t got = 0;
	void *room = NULL;

	if (rank == 0) {
		for (int i = 0; i < COUNT; i++)
			here[i] = value(rank, 2, step, i);
		d = message(BERTH_SEND, here, 1, 5);
		CHECK(!berth_run(&d, -1, NULL), "send");
	} else if (rank == 1) {
		d.count = 0;
		d.alloc = give_room;
		d.alloc_ctx = &room;
		d.received = &got;
		CHECK(!berth_run(&d, -1, NULL), "receive");
		CHECK(room && got == COUNT, "%llu elements", (unsigned long long)got);
		check_there(room, 0, 2, step);
		cuMemFree((uintptr_t)room);
	}
}

static int messages(void)
{
	void *from = standin_alloc(BYTES), *to = standin_alloc(BYTES),
	     *own = standin_alloc(BYTES);
	float *here;

	cuMemHostAlloc((void **)&here, 2 * BYTES, 0);
	for (int step = 0; step < STEPS; step++) {
		put(from, here, 0, step);
		send_around(step, from, to, own);
		if (size > 1) {
			keep_order(step, from, here);
			ask_for_room(step, here);
		}
	}
	cuMemFreeHost(here);
	return 0;
}

/* A stream that does not come to the message in time, and a set that ends before. */
static int messages_late(void)
{
	const int all[2] = { 0, 1 };
	struct berth_desc d;
	berth_request *r;
	berth_set *set;

	if (rank > 1)
		return 0;
	CHECK(!berth_set_add(all, 2, &set), "add");
	d = message_there(rank ? BERTH_RECV : BERTH_SEND, standin_alloc(BYTES), !rank,
			  6);
	d.set = set;
	d.timeout_ms = 200;
	if (!rank)
		pause_stream(1500);
	CHECK(berth_run(&d, -1, NULL) == BERTH_TIMEOUT, "late");
	if (!rank)
		CHECK(strstr(berth_last_error()->text,
			     "what its stream has was not done in time"),
		      "the text: %s", berth_last_error()->text);
	d.timeout_ms = 0;
	CHECK(!berth_submit(&d, 1, &r), "submit");
	if (!rank)
		berth_set_abort(set, "it is late");
	CHECK(berth_wait(r, SOON_MS) == BERTH_ABORTED, "the set has ended");
	cuStreamSynchronize(stream);
	return 0;
}

static int messages_refused(void)
{
	struct berth_desc d = message_there(rank ? BERTH_RECV : BERTH_SEND,
					    standin_alloc(BYTES), !rank, 7);

	CHECK(berth_run(&d, -1, NULL) == BERTH_UNSUPPORTED, "by NCCL only");
	CHECK(strstr(berth_last_error()->text, "messages do not go by NCCL"),
	      "the text: %s", berth_last_error()->text);
	return 0;
}

#endif
