/* mixed.h - operations of which some ranks have their arrays on the host, and others on
 * a device.  For devices.c. */
#ifndef BERTH_TESTS_DEVICES_MIXED_H
#define BERTH_TESTS_DEVICES_MIXED_H

enum { MIXED_COUNT = 1 << 20 };

/* An array of this rank, on the host or not. */
struct mixed {
	bool is_there;
	float *here;
	void *there;
	struct berth_desc d;
};

static void mixed_make(struct mixed *m, int count)
{
	cuMemHostAlloc((void **)&m->here, (size_t)count * sizeof *m->here, 0);
	m->there = standin_alloc((size_t)count * sizeof *m->here);
}

static void mixed_free(struct mixed *m)
{
	cuMemFreeHost(m->here);
	cuMemFree((uintptr_t)m->there);
}

/* COUNT values of it are those of TENSOR; the operation is in place. */
static void mixed_begin(struct mixed *m, berth_kind kind, int count, int tensor,
			int step)
{
	m->is_there = (rank + step) % 2;
	for (int i = 0; i < count; i++)
		m->here[i] = value(rank, tensor, step, i);
	if (m->is_there)
		standin_copy(m->there, m->here, (size_t)count * sizeof *m->here,
			     stream);
	m->d = (struct berth_desc)BERTH_DESC(.kind = kind, .type = BERTH_F32,
					     .root = 1 % size,
					     .in = m->is_there ? m->there : m->here,
					     .out = m->is_there ? m->there : m->here,
					     .count = (uint64_t)count,
					     .memory = m->is_there ? BERTH_CUDA
								   : BERTH_HOST,
					     .stream = m->is_there ? stream : NULL);
}

static const float *mixed_end(struct mixed *m, int count)
{
	if (m->is_there)
		standin_copy(m->here, m->there, (size_t)count * sizeof *m->here,
			     stream);
	cuStreamSynchronize(stream);
	return m->here;
}

static void mixed_check_sum(struct mixed *m, int count, int tensor, int step)
{
	const float *is = mixed_end(m, count);

	for (int i = 0; i < count; i++)
		CHECK(is[i] == sum(tensor, step, i), "step %d element %d: %g, not %g",
		      step, i, (double)is[i], (double)sum(tensor, step, i));
}

static int mixed(void)
{
	struct mixed a, b;
	struct berth_desc d[2];
	berth_request *r;

	mixed_make(&a, MIXED_COUNT);
	mixed_make(&b, COUNT);
	for (int step = 0; step < STEPS; step++) {
		mixed_begin(&a, BERTH_ALLREDUCE, COUNT, 0, step);
		CHECK(!berth_run(&a.d, -1, NULL), "blocking: %s",
		      berth_last_error()->text);
		mixed_check_sum(&a, COUNT, 0, step);

		mixed_begin(&a, BERTH_BROADCAST, COUNT, 1, step);
		CHECK(!berth_run(&a.d, -1, NULL), "broadcast");
		mixed_end(&a, COUNT);
		for (int i = 0; i < COUNT; i++)
			CHECK(a.here[i] == value(1 % size, 1, step, i), "element %d",
			      i);

		mixed_begin(&a, BERTH_ALLREDUCE, MIXED_COUNT, 2, step);
		mixed_begin(&b, BERTH_ALLREDUCE, COUNT, 3, 2 * step);
		d[0] = a.d;
		d[1] = b.d;
		d[0].name = "a";
		d[1].name = "b";
		CHECK(!berth_submit(d, 2, &r), "submit");
		CHECK(!berth_wait(r, -1), "wait");
		mixed_check_sum(&a, MIXED_COUNT, 2, step);
		mixed_check_sum(&b, COUNT, 3, 2 * step);
	}
	mixed_free(&a);
	mixed_free(&b);
	return 0;
}

#endif
