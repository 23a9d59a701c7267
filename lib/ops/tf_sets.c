#include "lib/ops/tf_sets.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
	berth_set *set;
	bool is_known;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct row *rows; /* by ID; LOCK */
static int nrows;

int berth_tf_set(int id, berth_set *set, int is_known)
{
	int result = 0;

	pthread_mutex_lock(&lock);
	if (id > 0 && id >= nrows) {
		int n = id + 16;
		struct row *more = realloc(rows, (size_t)n * sizeof *more);

		if (more) {
			memset(more + nrows, 0, (size_t)(n - nrows) * sizeof *more);
			rows = more;
			nrows = n;
		}
	}
	if (id > 0 && id < nrows)
		rows[id] = (struct row){ set, is_known != 0 };
	else
		result = 1;
	pthread_mutex_unlock(&lock);
	return result;
}

/* SET gets that of ID.  False: there is none. */
static bool sets_find(int64_t id, berth_set **set)
{
	bool is_known;

	*set = NULL;
	if (id == 0)
		return true;
	pthread_mutex_lock(&lock);
	is_known = id > 0 && id < nrows && rows[id].is_known;
	if (is_known)
		*set = rows[id].set;
	pthread_mutex_unlock(&lock);
	return is_known;
}

bool tf_sets_group(int64_t id, struct tf_group *group, char *why, size_t bytes)
{
	if (berth_rank() < 0) {
		snprintf(why, bytes,
			 "Horovod has not been initialized; use hvd.init().");
		return false;
	}
	if (!sets_find(id, &group->set)) {
		snprintf(why, bytes,
			 "there is no process set %lld: it is not added yet, or was "
			 "removed",
			 (long long)id);
		return false;
	}
	group->rank = group->set ? berth_set_rank(group->set) : berth_rank();
	group->ranks = group->set ? berth_set_size(group->set) : berth_size();
	return true;
}
