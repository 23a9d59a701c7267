#include "lib/ops/tf_sets.h"

#include <pthread.h>
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

bool tf_sets_find(int64_t id, berth_set **set)
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
