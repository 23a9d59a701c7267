/* agent/monitor/proc_use.h and host_use.h: files of /proc and /sys to numbers. */
#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/monitor/host_use.h"
#include "agent/monitor/proc_use.h"

static char root[64];

/* The file PATH below the root, and its folders. */
__attribute__((format(printf, 2, 3))) static void put(const char *path,
						      const char *format, ...)
{
	char file[512];
	va_list ap;
	FILE *f;

	snprintf(file, sizeof file, "%s/%s", root, path);
	for (char *slash = strchr(file + strlen(root) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		ck_assert(!mkdir(file, 0700) || errno == EEXIST);
		*slash = '/';
	}
	f = fopen(file, "w");
	ck_assert_ptr_nonnull(f);
	va_start(ap, format);
	vfprintf(f, format, ap);
	va_end(ap);
	fclose(f);
}

static void put_stat(int pid, const char *name, unsigned ticks)
{
	char path[64];

	snprintf(path, sizeof path, "proc/%d/stat", pid);
	put(path,
	    "%d (%s) S 1 5 5 0 -1 4194304 100 0 2 0 %u 0 0 0 20 0 3 0 9 8192 256 9\n",
	    pid, name, ticks);
}

static void setup(void)
{
	snprintf(root, sizeof root, "/tmp/berth-proc-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
}

static int remove_one(const char *path, const struct stat *st, int what,
		      struct FTW *where)
{
	(void)st;
	(void)what;
	(void)where;
	return remove(path);
}

static void teardown(void)
{
	ck_assert(!nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS));
}

START_TEST(a_process)
{
	struct proc_use u;

	put_stat(7, "a) b (c", 250);
	put("proc/7/schedstat", "1500000000 300000000 77\n");
	put("proc/7/io", "rchar: 5000\nwchar: 600\nsyscr: 1\nread_bytes: 4096\n");
	put("proc/7/status", "Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-1,4\n"
			     "voluntary_ctxt_switches:\t12\n"
			     "nonvoluntary_ctxt_switches:\t3\n");
	put("proc/7/task/7/children", "8 9 ");
	put_stat(8, "loader", 100);
	ck_assert(proc_use_read(&u, root, 7));
	ck_assert_uint_eq(u.cpu_us, 250 * 1000000 / (uint64_t)sysconf(_SC_CLK_TCK));
	ck_assert_uint_eq(u.main_us, 1500000);
	ck_assert_uint_eq(u.delay_us, 300000);
	ck_assert_uint_eq(u.resident_bytes, 256 * (uint64_t)sysconf(_SC_PAGESIZE));
	ck_assert_uint_eq(u.read_bytes, 5000);
	ck_assert_uint_eq(u.written_bytes, 600);
	ck_assert_uint_eq(u.disk_bytes, 4096);
	ck_assert_uint_eq(u.sleeps, 12);
	ck_assert_uint_eq(u.preempted, 3);
	ck_assert_uint_eq(u.threads, 3);
	ck_assert_uint_eq(u.children, 2);
	ck_assert_uint_eq(u.children_us,
			  100 * 1000000 / (uint64_t)sysconf(_SC_CLK_TCK));
	ck_assert_str_eq(u.state, "S");
	ck_assert_str_eq(u.cpus, "0-1,4");
}
END_TEST

/* What is not there, or not as it should be, is 0. */
START_TEST(missing_and_strange_files)
{
	struct proc_use u;

	ck_assert(!proc_use_read(&u, root, 7));
	put("proc/7/stat", "7 (x");
	ck_assert(!proc_use_read(&u, root, 7));
	put("proc/7/stat", "7 (x) R 1 2");
	ck_assert(!proc_use_read(&u, root, 7));
	put_stat(7, "x", 1);
	put("proc/7/schedstat", "none\n");
	put("proc/7/status", "Cpus_allowed_list:\t%02000d\n", 0);
	put("proc/7/task/7/children", "-3 x");
	ck_assert(proc_use_read(&u, root, 7));
	ck_assert_uint_eq(u.main_us, 0);
	ck_assert_uint_eq(u.children, 0);
	ck_assert_str_eq(u.cpus, "");
}
END_TEST

/* bash -c "python ..." */
START_TEST(the_worker_below_a_shell)
{
	struct proc_use u;

	put_stat(7, "bash", 1);
	put("proc/7/task/7/children", "8 ");
	put_stat(8, "python", 500);
	ck_assert_int_eq(proc_use_worker(&u, root, 7), 8);
	ck_assert_uint_eq(u.cpu_us, 500 * 1000000 / (uint64_t)sysconf(_SC_CLK_TCK));
	put_stat(7, "python", 400); /* it works itself */
	ck_assert_int_eq(proc_use_worker(&u, root, 7), 7);
	put_stat(7, "sh", 1);
	put("proc/7/task/7/children", "8 9 ");
	put_stat(9, "python", 500);
	ck_assert_int_eq(proc_use_worker(&u, root, 7), 7);
	ck_assert_int_eq(proc_use_worker(&u, root, 6), 0);
}
END_TEST

START_TEST(a_machine)
{
	struct wire_host_use m = { .clock_ns = 5 };

	put("proc/pressure/cpu", "some avg10=1.00 avg60=0.50 avg300=0.10 total=700\n");
	put("proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=20\n"
				"full avg10=0.00 avg60=0.00 avg300=0.00 total=9\n");
	put("proc/vmstat", "nr_free_pages 5\noom_kill 3\n");
	put("proc/meminfo", "MemTotal:   99 kB\nMemAvailable:   64 kB\n");
	put("proc/net/dev", "Inter-|   Receive\n face |bytes    packets\n"
			    "    lo: 1000 1 0 0 0 0 0 0 1000 1 0 0 0 0 0 0\n"
			    "  eth0: 300 1 0 0 0 0 0 0 40 1 0 0 0 0 0 0\n"
			    "  eth1:5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n");
	for (int port = 1; port <= 2; port++) {
		char path[128];

		snprintf(path, sizeof path,
			 "sys/class/infiniband/mlx5_0/ports/%d/counters/port_rcv_data",
			 port);
		put(path, "10\n");
		snprintf(path, sizeof path,
			 "sys/class/infiniband/mlx5_0/ports/%d/counters/port_xmit_data",
			 port);
		put(path, "20\n");
	}
	host_use_read(&m, root);
	ck_assert_uint_eq(m.cpu_us, 700);
	ck_assert_uint_eq(m.io_us, 20);
	ck_assert_uint_eq(m.memory_us, 0);
	ck_assert_uint_eq(m.oom_kills, 3);
	ck_assert_uint_eq(m.free_bytes, 65536);
	ck_assert_uint_eq(m.net_bytes, 351);
	ck_assert_uint_eq(m.ib_bytes, 240);
	ck_assert_uint_eq(m.clock_ns, 5);
}
END_TEST

START_TEST(ports)
{
	ck_assert_uint_eq(host_link_mbit(root), 0);
	put("sys/class/net/lo/speed", "99999\n");
	put("sys/class/net/veth1/speed", "10000\n"); /* it has no device */
	put("sys/class/net/veth1/operstate", "up\n");
	put("sys/class/net/eth0/speed", "-1\n");
	put("sys/class/net/eth0/operstate", "up\n");
	put("sys/class/net/eth0/device/vendor", "0x1af4\n");
	ck_assert_uint_eq(host_link_mbit(root), 0);
	put("sys/class/net/eth1/speed", "1000\n");
	put("sys/class/net/eth1/operstate", "down\n");
	put("sys/class/net/eth1/device/vendor", "0x8086\n");
	ck_assert_uint_eq(host_link_mbit(root), 0);
	put("sys/class/net/eth1/operstate", "up\n");
	ck_assert_uint_eq(host_link_mbit(root), 1000);
	put("sys/class/infiniband/mlx5_0/ports/1/rate", "2.5 Gb/sec (1X SDR)\n");
	put("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
	ck_assert_uint_eq(host_link_mbit(root), 1000);
	put("sys/class/infiniband/mlx5_0/ports/2/rate", "100 Gb/sec (4X EDR)\n");
	put("sys/class/infiniband/mlx5_0/ports/2/state", "4: ACTIVE\n");
	ck_assert_uint_eq(host_link_mbit(root), 100000);
}
END_TEST

/* This process has used something, on some CPU. */
START_TEST(this_machine)
{
	struct wire_host_use m = { 0 };
	struct proc_use u;

	ck_assert(proc_use_read(&u, "", getpid()));
	ck_assert_uint_gt(u.main_us, 0);
	ck_assert_uint_gt(u.resident_bytes, 0);
	ck_assert_str_ne(u.cpus, "");
	host_use_read(&m, "");
	ck_assert_uint_gt(m.free_bytes, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("monitor_proc_use");
	TCase *t = tcase_create("proc");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_process);
	tcase_add_test(t, missing_and_strange_files);
	tcase_add_test(t, the_worker_below_a_shell);
	tcase_add_test(t, a_machine);
	tcase_add_test(t, ports);
	tcase_add_test(t, this_machine);
	suite_add_tcase(s, t);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
