#include "launcher/cli/advice.h"

#define VIEW "chrome://tracing or https://ui.perfetto.dev"

/* clang-format off */
const struct advice advice_table[] = {
	{ TOPIC_slow, "--report-bindings",
	  "Prints the GPU and the CPUs of each rank. If ranks share cores, or if cores have no rank, "
	  "try --bind-to and --share. --plan shows their effect without a start." },
	{ TOPIC_slow, "OMP_NUM_THREADS",
	  "If it has no value, each rank gets the number of its cores, at most 8. OpenMP, PyTorch "
	  "and MKL start so many threads. -x OMP_NUM_THREADS=1 is for a program that is meant to "
	  "have one thread per rank. The workers of a data loader share the cores of their rank." },
	{ TOPIC_slow, "--summary",
	  "Prints at the end, for each host, the CPU time and the peak memory of its ranks, and when "
	  "the first and the last of them ended. Look for a host that differs." },
	{ TOPIC_slow, "--monitor 1s",
	  "Samples what each rank uses, and says at the end what holds the job back: a slow rank and "
	  "why, changed CPUs, input, collectives, memory. --top shows a table while the ranks run." },
	{ TOPIC_slow, "-x HOROVOD_TIMELINE=/tmp/t.json",
	  "libberth writes when each operation began, and how long it took. Rank 0 writes /tmp/t.json, "
	  "rank N writes /tmp/t.json.N, each on its host. View one in " VIEW ". All ranks use one "
	  "clock. To see them together, copy the files to one host and join them: "
	  "jq -s add t.json t.json.* > all.json" },
	{ TOPIC_slow, "runner -np 16 -H ip1:8,ip2:8 berth_bench",
	  "Measures an allreduce of libberth for each size, with the ranks and hosts of your job. If "
	  "it is fast, look for the cause in the program. See berth_bench(1)." },
	{ TOPIC_slow, "--net 10.0.0.0/8",
	  "libberth uses the interface that leads to its peers. If the hosts have a faster network, "
	  "give its addresses. NCCL has NCCL_SOCKET_IFNAME and gloo has GLOO_SOCKET_IFNAME for that." },
	{ TOPIC_slow, "-x NCCL_DEBUG=INFO",
	  "NCCL prints the network that it uses: NET/IB is InfiniBand, NET/Socket is TCP." },
	{ TOPIC_slow, "GPU tensors under --horovod",
	  "libberth copies tensors of GPUs to the host and back. PyTorch's DistributedDataParallel with "
	  "the backend nccl does not." },

	{ TOPIC_hang, "Ctrl-\\, or kill -QUIT PID",
	  "Press Ctrl-\\ in the terminal of runner, or send SIGQUIT to runner. It prints the host, "
	  "process, state and last output of each rank. For a rank that uses libberth it also prints "
	  "the current operation, how long that has lasted, and the ranks for which it waits. The job "
	  "goes on." },
	{ TOPIC_hang, "-x HOROVOD_STALL_CHECK_TIME_SECONDS=10",
	  "If a rank waits in an operation of libberth for 60 s, or for the time of this variable, a "
	  "warning names the missing ranks, their hosts and their last operations. With "
	  "-x BERTH_OP_TIMEOUT=600 an operation that lasts 600 s is an error." },
	{ TOPIC_hang, "kill -ABRT PID",
	  "Send it on the host of a rank, to the process that Ctrl-\\ shows. If the rank is Python, it "
	  "prints the stacks of its threads. Then it ends, and the job with it." },
	{ TOPIC_hang, "-x NCCL_DEBUG=INFO",
	  "NCCL prints its network and its connections. Its last lines show how far each rank came." },
	{ TOPIC_hang, "--net 10.0.0.0/8",
	  "If the hosts have a network that does not lead from each host to each other one, give the "
	  "addresses of one that does." },
	{ TOPIC_hang, "--check",
	  "Tests the hosts and starts no rank: among other things, a connection to rank 0." },
	{ TOPIC_hang, "--hang-timeout 10m",
	  "Names a rank that hangs, and ends it. With --restarts it starts again, alone or with all "
	  "others. Without this option one that hangs for 5 minutes is named." },
	{ TOPIC_hang, "--timeout 12h",
	  "Ends a job that hangs, with exit status 124." },
};
/* clang-format on */

const size_t advice_count = sizeof advice_table / sizeof *advice_table;
