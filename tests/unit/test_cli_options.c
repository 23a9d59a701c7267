/* test_cli_options.c - command lines to requests: one row each. */
#include "tests/unit/request_text.h"

/* ---- command lines ---- */

#define TIME_HINT " | write seconds, or a number with s, m, h or d: 90, 5m, 1h"
#define SHOW_HINT " | write ranks, ranges, 'errors', 'all' or 'none': 0,8-11,errors"
#define EXPORT_HINT " | write NAME, NAME=VALUE or 'PREFIX*'"
#define HOSTS_HINT " | give only one of -H, --hostfile and --rankfile"
#define RANGE_HINT                                                                     \
	" | --min-np may be no higher than -np, and -np no higher than --max-np"
#define TRY_HINT "write the program after the options: runner -np 2 python train.py"
#define MAP_HINT                                                                       \
	"slot, node, ppr:N:node, ppr:N:socket and ppr:N:numa say how many ranks a "    \
	"host gets; each then runs "                                                   \
	"next to its GPU, see --bind-to"
#define B_NOTE                                                                         \
	" | warning: --export B: the variable is set here, and ALL forwards that "     \
	"value\nhint: to change it, use -x B=VALUE"
#define NODES "name the hosts with -H, as many as the job shall have"
#define MEETING "ranks meet at MASTER_ADDR:MASTER_PORT, which runner chooses"
#define ONE_GPU                                                                        \
	"each rank gets one GPU of its host; --gpus says which GPUs, and "             \
	"--gpu-visible node shows all"
#define N_NOTE                                                                         \
	" | warning: -N 2 is the number of ranks on each host here, as for mpirun; "   \
	"for "                                                                         \
	"srun it is the number of hosts\nhint: write --nodes for the number of "       \
	"hosts, "                                                                      \
	"--ntasks-per-node for the ranks on each"
#define FILL_NOTE "hosts fill by slot, ranks run next to their GPUs"
#define WHERE "say where ranks run with -H, -ppn and --map-by"
#define APP_HINT                                                                       \
	"give it before the first program; only -np, -H, -ppn, -x, --wdir and "        \
	"--tf-config may follow a ':'"

static const struct {
	const char *line, *want;
} lines[] = {
	/* the shape of a command line */
	{ "a", " [a]" },
	{ "-np 16 -H ip1:8,ip2:8 python t.py",
	  " hosts=ip1:8,ip2:8 from=-H np=16 [python t.py]" },
	{ "-np16 a", " np=16 [a]" },
	{ "-n 3 a", " np=3 npfrom=-n [a]" },
	{ "--num_proc=3 a", " np=3 npfrom=--num_proc [a]" },
	{ "--ntasks 3 a", " np=3 npfrom=--ntasks [a]" },
	{ "-np 2 -np 3 a", " np=3 [a]" },
	{ "a -np 3 --verbose", " [a -np 3 --verbose]" },
	{ "-np 2 -- -a b", " np=2 [-a b]" },
	{ "-- -- a", " [-- a]" },
	{ "-np 2 a x : -np 1 -x B=2 --wdir /w b : c",
	  " np=2 [a x] np=1 x=B=2 wdir=/w [b] [c]" },
	{ "-x A -np 2 a : b", " np=2 x=A [a] [b]" },
	{ "", " error no program to run | " TRY_HINT },
	{ "-np 2", " error no program to run | " TRY_HINT },
	{ "-np 2 --", " error no program to run | " TRY_HINT },
	{ "a :", " error app 2: no program to run | " TRY_HINT },
	{ "a : : b", " error app 2: no program to run | " TRY_HINT },
	{ ": a", " error app 1: no program to run | " TRY_HINT },
	{ "a : -H b c", " [a] hosts=b from=-H [c]" },
	{ "-H a -ppn 2 -np 1 a : -np 2 --host b --npernode 3 c : -np 3 --pernode d",
	  " hosts=a from=-H ppn=2 np=1 [a] np=2 hosts=b from=--host ppn=3 [c] np=3 "
	  "ppn=1 "
	  "[d]" },
	{ "--hostfile f a : -H b c", " error '-H' behind a ':' cannot follow "
				     "--hostfile or --rankfile | name the hosts of all "
				     "programs with -H" },
	{ "--hostfile f a : -ppn 2 c",
	  " error '-ppn' behind a ':' cannot follow "
	  "--hostfile or --rankfile | name the hosts of all "
	  "programs with -H" },
	{ "a : --map-by node c", " error app 2: '--map-by' cannot differ between the "
				 "apps of a job | " APP_HINT },
	{ "a : --gloo c", " error app 2: '--gloo' cannot differ between the apps of a "
			  "job | " APP_HINT },
	{ "--plan", " plan=1 []" },
	{ "--dry-run -np 4", " plan=1 np=4 []" },
	{ "--plan=json --topology a=x.xml --topology y.xml",
	  " plan=2 topology=x.xml topology=y.xml for=a for= []" },
	{ "--plan a b", " plan=1 [a b]" },
	{ "--check a", " check=1 [a]" },
	{ "--check --no-check a", " [a]" },
	{ "--check", " error no program to run | " TRY_HINT },
	{ "--summary a", " summary=1 [a]" },
	{ "--summary=json a", " summary=2 [a]" },
	{ "--summary --summary=none a", " [a]" },
	{ "--summary=jsn a",
	  " error --summary: 'jsn' is not one of none, text, json | did you mean "
	  "'json'?" },
	{ "--topology x.xml", " topology=x.xml for= []" },
	{ "--plan=jsn", " error --plan: 'jsn' is not one of text, json, svg, png | did "
			"you mean 'json'?" },
	{ "--plan --topology =x", " error --topology: '=x' is not [host=]file" },
	{ "--version", " printed runner " BERTH_VERSION "\n" },
	{ "-np x --version --nonsense", " printed runner " BERTH_VERSION "\n" },
	{ "--help", " printed usage: runner [optio" },
	{ "--help --map-by", " printed --map-by slot|node\n " },
	{ "--help=gpus", " printed GPUs of a rank (--he" },
	{ "--help bindng",
	  " error there is no help on 'bindng' | did you mean 'binding'?" },
	{ "--help xyzzy",
	  " error there is no help on 'xyzzy' | list the topics with `runner --help`" },
	{ "--version=3", " error '--version' takes no value, but has '3'" },
	{ "--print=tables", " printed topic\tHow many ranks" },
	{ "--print=x", " error 'x' is not one of tables" },

	/* errors of one option */
	{ "-np 0 a", " error -np: '0' is not a number from 1 to 1048576" },
	{ "-np x a", " error -np: 'x' is not a number from 1 to 1048576" },
	{ "-np -1 a", " error -np: '-1' is not a number from 1 to 1048576" },
	{ "-np 99999999999999999999 a",
	  " error -np: '99999999999999999999' is not a number from 1 to 1048576" },
	{ "-np '' a", " error -np: '' is not a number from 1 to 1048576" },
	{ "-np", " error '-np' needs a value: N" },
	{ "-x", " error '-x' needs a value: NAME[=VALUE]" },
	{ "--hostfiel f a",
	  " error unknown option '--hostfiel' | did you mean '--hostfile'?" },
	{ "--bind core a",
	  " error unknown option '--bind' | did you mean '--bind-to'?" },
	{ "--fusion-thresold-mb 3 a", " error unknown option '--fusion-thresold-mb' | "
				      "did you mean '--fusion-threshold-mb'?" },
	{ "-z a",
	  " error unknown option '-z' | list the options with `runner --help all`" },
	{ "--=3 a",
	  " error unknown option '--' | list the options with `runner --help all`" },
	{ "-H2 a", " error unknown option '-H2' | did you mean '-H'?" },
	{ "-H '' a", " error -H: the value is empty" },
	{ "--wdir= a", " error --wdir: the value is empty" },
	{ "-H a --hostfile f b", " error '--hostfile' cannot follow another option "
				 "that names hosts" HOSTS_HINT },
	{ "-f f -H a b",
	  " error '-H' cannot follow another option that names hosts" HOSTS_HINT },
	{ "--transport none a",
	  " error --transport: 'none' is not one of auto, local, ssh, openssh, srun" },
	{ "--transport srun a", " transport=srun [a]" },
	{ "--no-tag=yes a", " error '--no-tag' takes no value, but has 'yes'" },
	{ "--no-map-by a",
	  " error unknown option '--no-map-by' | did you mean '--map-by'?" },
	{ "-p 65536 a", " error -p: '65536' is not a number from 1 to 65535" },

	/* hosts */
	{ "-H a -H b c", " hosts=b from=-H [c]" },
	{ "-hosts a,b c", " hosts=a,b from=-hosts [c]" },
	{ "--host=a c", " hosts=a from=--host [c]" },
	{ "-hostfile f c", " hostfile=f from=-hostfile [c]" },
	{ "-f f c", " hostfile=f from=-f [c]" },
	{ "-machinefile f c", " hostfile=f from=-machinefile [c]" },
	{ "-ppn 4 a", " ppn=4 [a]" },
	{ "-ppn4 a", " ppn=4 [a]" },
	{ "-N 4 a", " ppn=4 [a]" },
	{ "--npernode 4 a", " ppn=4 [a]" },
	{ "-p 2222 -i key --accept-new-hosts --no-push a",
	  " port=2222 identity=key accept=1 nopush=1 [a]" },
	{ "-p2222 --ssh_identity_file=k a", " port=2222 identity=k [a]" },
	{ "--no-push --push a", " [a]" },
	{ "--transport openssh --launch-agent /x/y a",
	  " transport=openssh agent=/x/y [a]" },
	{ "--oversubscribe a", " oversubscribe=1 [a]" },
	{ "--oversubscribe --no-oversubscribe a", " [a]" },
	{ "--oversubscribe=off a", " [a]" },
	{ "--oversubscribe=maybe a",
	  " error --oversubscribe: 'maybe' is not one of yes, no" },

	/* times */
	{ "--timeout 90 --start-timeout 30s --host-timeout 5m --kill-grace 1h a",
	  " host=300 timeout=90 grace=3600 gracegiven=1 [a]" },
	{ "--timeout 2d --kill-grace 10 a", " timeout=172800 gracegiven=1 [a]" },
	{ "--timeout 5x a",
	  " error --timeout: '5x' is not a time from 0 to 2592000 seconds" TIME_HINT },
	{ "--start-timeout 0 a", " error --start-timeout: '0' is not a time from 1 to "
				 "2592000 seconds" TIME_HINT },
	{ "--timeout 31d a",
	  " error --timeout: '31d' is not a time from 0 to 2592000 seconds" TIME_HINT },
	{ "--timeout 0.5 --kill-grace 1.25s a",
	  " timeout=0.5 grace=1.25 gracegiven=1 [a]" },
	{ "--timeout 1.5h --start-timeout .05m a", " start=3 timeout=5400 [a]" },
	{ "--timeout 0.00001 a", " timeout=0.001 [a]" }, /* 0 would be no limit */
	{ "--timeout 0.0 a", " [a]" },
	{ "--timeout 1. a",
	  " error --timeout: '1.' is not a time from 0 to 2592000 seconds" TIME_HINT },
	{ "--timeout . a",
	  " error --timeout: '.' is not a time from 0 to 2592000 seconds" TIME_HINT },
	{ "--timeout 30.1d a", " error --timeout: '30.1d' is not a time from 0 to "
			       "2592000 seconds" TIME_HINT },
	{ "--keep-going a", " keepgoing=1 [a]" },

	/* output and input */
	{ "--output-filename d --events e --env-file f a",
	  " envfile=f output=d events=e [a]" },
	{ "--timeline t --timeline-steps 5:7 a", " timeline=t first=5 last=7 [a]" },
	{ "--timeline-steps :7 a", " last=7 [a]" },
	{ "--log-dir d a", " output=d [a]" },
	{ "--no-tag a", " tag=2 [a]" },
	{ "--no_tag a", " tag=2 [a]" },
	{ "--tag-style short a", " tag=1 [a]" },
	{ "--tag-style short --tag a", " tag=1 [a]" },
	{ "--tag-style=none --tag a", " [a]" },
	{ "--tag-style short --no-tag a", " tag=2 [a]" },
	{ "--no-tag --tag-style long a", " [a]" },
	{ "--tag-style tall a",
	  " error --tag-style: 'tall' is not one of long, short, none" },
	{ "--color always a", " color=1 [a]" },
	{ "--colour=never a", " color=2 [a]" },
	{ "--no-tag -l a", " [a]" },
	{ "--no-tag --tag-output --timestamps --pty a", " timestamps=1 pty=1 [a]" },
	{ "-prefix-timestamp a", " timestamps=1 [a]" },
	{ "--show 0,8-11,errors a", " show=0,8-11 errors=1 [a]" },
	{ "--show 63-65 a", " show=63-65 [a]" },
	{ "--show 3 --show errors a", " show= errors=1 [a]" },
	{ "--show errors --show all a", " [a]" },
	{ "--show none a", " show= [a]" },
	{ "--show 3-1 a", " error --show: '3-1' is not a list of ranks" SHOW_HINT },
	{ "--show 1,,2 a", " error --show: '1,,2' is not a list of ranks" SHOW_HINT },
	{ "--show 0-99999999 a",
	  " error --show: '0-99999999' is not a list of ranks" SHOW_HINT },
	{ "--stdin 3 a", " stdin=3 [a]" },
	{ "-stdin all a", " stdin=all [a]" },
	{ "--stdin none a", " stdin=none [a]" },
	{ "--stdin -3 a", " error --stdin: '-3' is not one of a rank, all, none" },
	{ "-v a", " verbosity=1 [a]" },
	{ "-v -v a", " verbosity=2 [a]" },
	{ "-vv a", " verbosity=2 [a]" },
	{ "--verbose -q a", " verbosity=-1 [a]" },

	/* binding and GPUs */
	{ "--bind-to core a", " bind=core [a]" },
	{ "--bind-to core:4 a", " bind=core count=4 [a]" },
	{ "--bind_to=hwthread:2 a", " bind=hwthread count=2 [a]" },
	{ "--bind-to core:2 --bind-to none a", " bind=none [a]" },
	{ "-bind-to package a", " bind=socket [a]" },
	{ "--bind-to core:overload-allowed a",
	  " bind=core [a] | ignored: :overload-allowed of --bind-to (CPUs are shared "
	  "only where they must be)" },
	{ "--bind-to core:0 a",
	  " error --bind-to: count after 'core': '0' is not a number from 1 to 4096" },
	{ "--bind-to none:2 a",
	  " error --bind-to: 'none' takes no value, but has '2'" },
	{ "--bind-to cor a",
	  " error --bind-to: 'cor' is not one of auto, none, socket, "
	  "numa, l3, core, hwthread | did you mean 'core'?" },
	{ "--share home --report-bindings --gpus 0,1 --gpu-visible node --gpu-id uuid "
	  "--no-gpu-sharing a",
	  " share=home report=1 gpus=0 gpus=1 visible=node gpuid=1 nosharing=1 [a]" },
	{ "--gpus 0,1 --gpus=53:00.0,,GPU-1a a",
	  " gpus=53:00.0 gpus= gpus=GPU-1a [a]" },
	{ "--gpus= a", " error --gpus: the value is empty" },

	/* variables for the ranks */
	{ "-x A -x B=1,2 -x C= -x NCCL_* a", " x=A x=B=1,2 x=C= x=NCCL_* [a]" },
	{ "-x=A a", " x=A [a]" },
	{ "-x =A a", " error -x: '=<redacted, 1 byte>' is not a variable" EXPORT_HINT },
	{ "-x A*B a", " error -x: 'A*B' is not a variable" EXPORT_HINT },
	{ "-x A*=1 a",
	  " error -x: 'A*=<redacted, 1 byte>' is not a variable" EXPORT_HINT },
	{ "-x A,B a", " error -x: 'A,B' is not a variable" EXPORT_HINT },
	{ "-x MY;KEY=secret a",
	  " error -x: 'MY;KEY=<redacted, 6 bytes>' is not a variable" EXPORT_HINT },
	{ "-genv A*KEY s3cret a",
	  " error -genv: 'A*KEY' is not a variable" EXPORT_HINT },
	{ "-genv A=s3cret x a",
	  " error -genv: 'A=<redacted, 6 bytes>' is not a variable" EXPORT_HINT },
	{ "-x UNSET -x UNSET a",
	  " x=UNSET x=UNSET [a] | warning: -x UNSET: the variable is not set "
	  "here\nhint: give it a value: -x UNSET=VALUE" },
	{ "-x UNSET=1 -x UNSET* a", " x=UNSET=1 x=UNSET* [a]" },
	{ "-np 1 a : -np 1 -x UNSET b",
	  " np=1 [a] np=1 x=UNSET [b] | warning: -x UNSET: the variable is not set "
	  "here\nhint: give it a value: -x UNSET=VALUE" },
	{ "-genvlist UNSET a", " all=UNSET [a] | warning: -x UNSET: the variable is "
			       "not set here\nhint: give "
			       "it a value: -x UNSET=VALUE" },
	{ "-x * a", " error -x: '*' is not a variable" EXPORT_HINT },

	/* --export, as srun reads it */
	{ "--export all a", " [a]" },
	{ "--export ALL a", " [a]" },
	{ "--export none a", " only [a]" },
	{ "--export=NONE a", " only [a]" },
	{ "--export nil a", " only [a]" },
	{ "--export A a", " only forward=A [a]" },
	{ "--export A,B=2 a", " only forward=A forward=B=2 [a]" },
	{ "--export B=2,ALL,A a", " forward=B forward=A [a]" B_NOTE },
	{ "--export ALL,NEW=1 a", " forward=NEW=1 [a]" },
	{ "--export all,B=2 a", " forward=B [a]" B_NOTE },
	{ "--export all,B=b a", " forward=B [a]" },
	{ "--export NCCL_*,A a", " only forward=NCCL_* forward=A [a]" },
	{ "--export A,NONE,B a", " only forward=A [a]" },
	{ "--export NONE,A a", " only [a]" },
	{ "--export ,A,, a", " only forward=A [a]" },
	{ "--export , a", " only [a]" },
	{ "--export A=,B a", " only forward=A= forward=B [a]" },
	{ "--export 'A=1,2',B a", " only forward=A=1,2 forward=B [a]" },
	{ "--export \"A=1,2\" a", " only forward=A=1,2 [a]" },
	{ "--export A=\"1,2\",B a", " only forward=A=\"1,2\" forward=B [a]" },
	{ "--export A=\"it's,\",B a", " only forward=A=\"it's,\" forward=B [a]" },
	{ "--export A --export B a", " only forward=B [a]" },
	{ "--export A --export all a", " [a]" },
	{ "--export UNSET a",
	  " only forward=UNSET [a] | warning: --export UNSET: the variable is not set "
	  "here\nhint: give it a value: -x UNSET=VALUE" },
	{ "--export none -x A=1 a", " only x=A=1 [a]" },
	{ "--export '' a", " error --export: the value is empty" },
	{ "--export 9=secret a",
	  " error --export: '9=<redacted, 6 bytes>' is not a variable" EXPORT_HINT },
	{ "--export A,B='secret a",
	  " error --export: 'B=<redacted, 7 bytes>' is not a variable" EXPORT_HINT },
	{ "--export A;B a", " error --export: 'A;B' is not a variable" EXPORT_HINT },
	{ "a : --export none b", " error app 2: '--export' cannot differ between the "
				 "apps of a job | " APP_HINT },
	{ "-genvnone -genv A 1 a", " only all=A=1 [a]" },

	/* mapping */
	{ "--map-by node a", " bynode=1 [a]" },
	{ "-map-by slot a", " [a]" },
	{ "--map-by socket a", " [a] | ignored: --map-by socket (" FILL_NOTE ")" },
	{ "--map-by node --map-by numa a",
	  " [a] | ignored: --map-by numa (" FILL_NOTE ")" },
	{ "--map-by ppr:4:node a", " ppn=4 [a]" },
	{ "--map-by ppr:4:node:PE=2:oversubscribe a",
	  " ppn=4 oversubscribe=1 [a] | ignored: PE=2 of --map-by (--bind-to core:N "
	  "gives a rank N cores)" },
	{ "--map-by :oversubscribe a", " oversubscribe=1 [a]" },
	{ "--map-by ppr:2:socket a", " ppn=2 per=1 [a]" },
	{ "--map-by ppr:2:package a", " ppn=2 per=1 [a]" },
	{ "--map-by ppr:1:numa a", " ppn=1 per=2 [a]" },
	{ "--map-by ppr:1:numa -ppn 3 a", " ppn=3 [a]" },
	{ "--map-by ppr:2:l3 a",
	  " error 'ppr:2:l3' of --map-by is not supported | " MAP_HINT },
	{ "--map-by ppr:2 a",
	  " error 'ppr:2' of --map-by is not supported | " MAP_HINT },
	{ "--map-by ppr:x:node a",
	  " error --map-by: 'x' is not a number from 1 to 1048576" },
	{ "--map-by slot:span a",
	  " error 'slot:span' of --map-by is not supported | " MAP_HINT },
	{ "--map-by socket:nolocal a",
	  " error 'socket:nolocal' of --map-by is not supported | " MAP_HINT },
	{ "--map-by seq a", " error 'seq' of --map-by is not supported | " MAP_HINT },
	{ "--map-by rankfile:file=r a",
	  " error 'rankfile:file=r' of --map-by is not supported | " MAP_HINT },
	{ "--map-by nod a",
	  " error --map-by: 'nod' is not one of slot, node | did you mean 'node'?" },
	{ "--map-by '' a", " error --map-by: '' is not one of slot, node" },

	/* Open MPI */
	{ "-mca pml ob1 --mca btl ^openib a",
	  " all=OMPI_MCA_pml=ob1 all=OMPI_MCA_btl=^openib [a]" },
	{ "-np 1 a : -mca pml ob1 b", " np=1 [a] x=OMPI_MCA_pml=ob1 [b]" },
	{ "-mca plm_rsh_agent x a",
	  " [a] | ignored: -mca plm_rsh_agent x (it is for Open MPI's own launcher)" },
	{ "-mca rmaps_base_mapping_policy ppr:2:socket a",
	  " error '-mca rmaps_base_mapping_policy ppr:2:socket' of Open MPI is not "
	  "supported | " WHERE },
	{ "--prtemca rmaps_x y a",
	  " error '--prtemca rmaps_x y' of Open MPI is not supported | " WHERE },
	{ "-mca pml", " error '-mca' needs a value: NAME VALUE" },
	{ "-mca a=b c a", " error -mca: 'OMPI_MCA_a=<redacted, 1 byte>' is not a "
			  "variable" EXPORT_HINT },
	{ "-mca plm_key s3cret a",
	  " [a] | ignored: -mca plm_key <redacted, 6 bytes> (it is for Open MPI's own "
	  "launcher)" },
	{ "-mca rmaps_key s3cret a", " error '-mca rmaps_key <redacted, 6 bytes>' of "
				     "Open MPI is not supported | " WHERE },
	{ "--allow-run-as-root --allow-run-as-root a",
	  " [a] | ignored: --allow-run-as-root (root may run jobs)" },
	{ "-bynode a", " bynode=1 [a]" },
	{ "-pernode a", " ppn=1 [a]" },
	{ "--oversubscribe -nooversubscribe a", " [a]" },
	{ "--bind-to-core a", " bind=core [a]" },
	{ "--display map,bind a",
	  " report=1 [a] | ignored: --display map (--plan shows the map)" },
	{ "--display x a", " error '--display x' of Open MPI is not supported | "
			   "--display takes bind, map, allocation" },
	{ "--output tag,timestamp a", " timestamps=1 [a]" },
	{ "--output dir=x a",
	  " error '--output dir=x' of Open MPI is not supported | --output takes tag "
	  "and timestamp; --output-filename DIR writes files" },
	{ "--use-hwthread-cpus -np 2 a",
	  " np=2 [a] | ignored: --use-hwthread-cpus (-np or -ppn says how many ranks "
	  "start)" },
	{ "-np 2 a : --use-hwthread-cpus -np 2 b",
	  " error app 2: '--use-hwthread-cpus' cannot differ between the apps of a job "
	  "| " APP_HINT },
	{ "--use_hwthread_cpus a", " error '--use-hwthread-cpus' of Open MPI is not "
				   "supported | give the number of ranks with -np or "
				   "-ppn" },
	{ "-rank-by slot a", " [a] | ignored: -rank-by slot (ranks are numbered in the "
			     "order of the hosts)" },
	{ "-rank-by node a",
	  " error '-rank-by node' of Open MPI is not supported | ranks are numbered "
	  "host by host, or in turn with --map-by node" },
	{ "--tune f a", " error '--tune' of Open MPI is not supported | give the "
			"parameters with -mca" },

	/* mpiexec */
	{ "-genv A B -env C D a : -env E F b", " all=A=B x=C=D [a] x=E=F [b]" },
	{ "-genv A '' a", " all=A= [a]" },
	{ "-genvlist A,B -envlist C a", " all=A all=B x=C [a]" },
	{ "-genvlist A,,B a", " error -genvlist: '' is not a variable" EXPORT_HINT },
	{ "-genvall a",
	  " [a] | ignored: -genvall (the environment is forwarded anyway)" },
	{ "-envnone a", " error '-envnone' of MPICH is not supported | use --export "
			"none, for all programs of the job" },
	{ "-prepend-rank a", " [a]" },
	{ "-launcher fork a", " transport=local [a]" },
	{ "-launcher ssh a",
	  " [a] | ignored: -launcher ssh (hosts are reached by ssh anyway)" },
	{ "-launcher slurm a",
	  " error '-launcher slurm' of MPICH is not supported | see --transport" },
	{ "-disable-auto-cleanup a", " keepgoing=1 [a]" },
	{ "-arch x a", " error '-arch' of mpiexec is not supported | " WHERE },
	{ "-configfile x", " error '-configfile' of mpiexec is not supported | write "
			   "the programs on the command line, with ':' between them" },

	/* horovodrun */
	{ "--gloo --gloo a",
	  " [a] | ignored: --gloo (it only chooses Horovod's controller)" },
	{ "--network-interfaces eth0,eth1 a",
	  " all=HOROVOD_GLOO_IFACE=eth0 all=NCCL_SOCKET_IFNAME=eth0,eth1 [a]" },
	{ "--fusion-threshold-mb 32 --cycle-time-ms 3.5 --timeline-filename t.json a",
	  " all=HOROVOD_FUSION_THRESHOLD=33554432 all=HOROVOD_CYCLE_TIME=3.5 "
	  "all=HOROVOD_TIMELINE=t.json [a]" },
	{ "--no-hierarchical-allreduce --autotune --no-stall-check --tcp a",
	  " all=HOROVOD_HIERARCHICAL_ALLREDUCE=0 all=HOROVOD_AUTOTUNE=1 "
	  "all=HOROVOD_STALL_CHECK_DISABLE=1 all=NCCL_IB_DISABLE=1 [a]" },
	/* roles: worker 2, chief 3, ps 4, evaluator 5, none 1 */
	{ "--tf-config -np 2 a", " np=2 role=2 [a]" },
	{ "--tf-config=chief -np 1 a : -np 2 b : --tf-config=ps -np 1 c : "
	  "--tf-config=none -np 1 d",
	  " np=1 role=3 [a] np=2 role=2 [b] np=1 role=4 [c] np=1 role=1 [d]" },
	{ "-np 1 a : --tf-config=evaluator -np 1 b",
	  " np=1 role=2 [a] np=1 role=5 [b]" },
	{ "--tf-config=none a", " role=1 [a]" },
	{ "--tf-config=ps a",
	  " error --tf-config: no program is a worker or a chief | give one program or "
	  "more the role worker or chief; only one rank may be chief, and one "
	  "evaluator" },
	{ "--tf-config=boss a",
	  " error --tf-config: 'boss' is not one of none, worker, chief, ps, "
	  "evaluator" },
	{ "--tf-config -x TF_CONFIG={} a",
	  " x=TF_CONFIG={} role=2 [a] | warning: --tf-config: TF_CONFIG is set, and "
	  "the "
	  "ranks keep that value\nhint: unset TF_CONFIG, or leave out --tf-config" },
	{ "--tf-config --horovod a", " error --tf-config cannot go with --horovod: "
				     "with TF_CONFIG TensorFlow's own "
				     "strategies connect the ranks, with --horovod "
				     "libberth does | give the one that "
				     "the script is written for" },
	{ "--tf-config --horovod=installed a", " role=2 [a]" },
	{ "--horovod --cycle-time-ms 3.5 --autotune --no-hierarchical-allreduce a",
	  " all=HOROVOD_CYCLE_TIME=3.5 all=HOROVOD_AUTOTUNE=1 "
	  "all=HOROVOD_HIERARCHICAL_ALLREDUCE=0 [a] | ignored: HOROVOD_CYCLE_TIME "
	  "(there are no cycles: what is ready is done) | ignored: HOROVOD_AUTOTUNE "
	  "(the way is chosen by what it costs)" },
	{ "--log-level INFO --log-hide-timestamp a",
	  " all=HOROVOD_LOG_LEVEL=INFO all=HOROVOD_LOG_HIDE_TIME=1 [a]" },
	{ "--log-level info a",
	  " error --log-level: 'info' is not one of TRACE, DEBUG, "
	  "INFO, WARNING, ERROR, FATAL" },
	{ "--fusion-threshold-mb 1.5 a",
	  " error --fusion-threshold-mb: '1.5' is not a number from 0 to 1048576" },
	{ "--cycle-time-ms -1 a",
	  " error --cycle-time-ms: '-1' is not a number of 0 or more" },
	{ "--cycle-time-ms nan a",
	  " error --cycle-time-ms: 'nan' is not a number of 0 or more" },
	{ "--min-np 2 a",
	  " error a number of ranks that follows the hosts needs a highest "
	  "one | give --max-np or -np" },
	{ "-np 4 --min-np 2 a", " restarts=3 2-4 np=4 [a]" },
	{ "--max-np 4 --restarts 0 a", " 1-4 [a]" },
	{ "--min-np 2 --max-np 4 --reset-limit 5 a", " restarts=5 2-4 [a]" },
	{ "-np 2 --host-discovery-script s a", " restarts=3 2-2 np=2 [a]" },
	{ "--max-np 2 --host-discovery-script s a", " restarts=3 1-2 [a]" },
	{ "-np 2 --host-discovery-script s -H b a",
	  " error '--host-discovery-script' cannot follow another option that "
	  "names hosts" HOSTS_HINT },
	{ "-np 2 --min-np 3 a",
	  " error the number of ranks is to be 2, at least 3 and at "
	  "most 2" RANGE_HINT },
	{ "-np 2 --max-np 1 a",
	  " error the number of ranks is to be 2, at least 1 and at "
	  "most 1" RANGE_HINT },
	{ "--min-np 3 --max-np 2 a",
	  " error the number of ranks is to be 3, at least 3 and "
	  "at most 2" RANGE_HINT },
	{ "-np 1 --max-np 2 a : -np 1 b",
	  " error the number of ranks can change only in a job of one program, and "
	  "without "
	  "--rankfile | leave out --min-np, --max-np and --host-discovery-script" },
	{ "-np 2 --blacklist-cooldown-range 1 2 a", " np=2 [a]" },
	{ "-np 2 --blacklist-cooldown-range 1 x a",
	  " error --blacklist-cooldown-range: 'x' is not a number from 0 to 86400" },
	{ "--mpi a", " [a]" },
	/* torchrun */
	{ "--nnodes=2 --nproc-per-node=8 a", " ppn=8 nodes=2 [a]" },
	{ "--nnodes 1:2 --nproc-per-node 4 a", " ppn=4 restarts=3 4-8 [a]" },
	{ "--nnodes 1:2 a",
	  " error --nnodes 1:2 needs the number of ranks on each host | give "
	  "--nproc-per-node, or --min-np and --max-np" },
	{ "--nnodes 2:1 a", " error --nnodes: '1' is not a number from 2 to 65536" },
	{ "--nnodes x a", " error --nnodes: 'x' is not a number from 1 to 65536" },
	{ "--nnodes 0 a", " error --nnodes: '0' is not a number from 1 to 65536" },
	{ "--nproc_per_node=gpu a",
	  " error '--nproc_per_node gpu' of torchrun is not supported | leave it out: "
	  "this machine then gets a rank for each GPU, or core; write other hosts as "
	  "-H ip1:gpus" },
	{ "-ppn x a", " error -ppn: 'x' is not a number from 1 to 1048576" },
	{ "--standalone --max-restarts 3 a",
	  " restarts=3 [a] | ignored: --standalone (" MEETING ")" },
	{ "--rdzv-backend=c10d --rdzv_endpoint ip1:29400 --rdzv_id 7 a",
	  " [a] | ignored: --rdzv-backend (" MEETING ") | ignored: --rdzv_endpoint "
	  "(" MEETING ") | ignored: --rdzv_id (" MEETING ")" },
	{ "--master-addr 10.0.0.1 --master_port=29500 --role trainer a",
	  " all=MASTER_ADDR=10.0.0.1 all=MASTER_PORT=29500 all=ROLE_NAME=trainer [a]" },
	{ "--node-rank 0 a",
	  " error '--node-rank' of torchrun is not supported | start "
	  "runner once, on one machine, and name all hosts with -H" },
	{ "-m pkg.train a", " error '-m' of torchrun is not supported | write the "
			    "command: python -m MODULE" },
	{ "--no-python --tee 3 a",
	  " [a] | ignored: --no-python (the program is started as it is) | ignored: "
	  "--tee (all output is shown; --log-dir DIR also writes it to files)" },
	{ "--local-ranks-filter 0 a",
	  " error '--local-ranks-filter' of torchrun is not supported | use --show" },
	/* srun */
	{ "--nodes=2 -w n[1-2] --ntasks-per-node 4 a",
	  " hosts=n1,n2 from=-w ppn=4 nodes=2 [a]" },
	{ "--nodes 2-4 a", " error '--nodes 2-4' of srun is not supported | " NODES },
	{ "--nodelist=a,b c", " hosts=a,b from=--nodelist [c]" },
	{ "-w a -H b c", " hosts=b from=-H [c]" },
	{ "-F f a", " hostfile=f from=-F [a]" },
	{ "-D /w a : -D /v b", " wdir=/w [a] wdir=/v [b]" },
	{ "-O a", " oversubscribe=1 [a]" },
	{ "-N 2 a", " ppn=2 [a]" },
	{ "-N 2 -np 4 -x A a", " ppn=2 np=4 x=A [a]" },
	{ "-N 2 --ntasks-per-node 8 a", " ppn=8 [a]" N_NOTE },
	{ "--cpu-bind none -N 2 a", " ppn=2 bind=none [a]" N_NOTE },
	{ "-N2 --ntasks 4 a", " ppn=2 np=4 npfrom=--ntasks [a]" N_NOTE },
	{ "--npernode 2 --ntasks 4 a", " ppn=2 np=4 npfrom=--ntasks [a]" },
	{ "--cpu-bind=verbose,cores a", " bind=core report=1 [a]" },
	{ "--cpu_bind ldoms a", " bind=numa [a]" },
	{ "--cpu-bind map_cpu:0,1 a",
	  " error '--cpu-bind map_cpu:0' of srun is not supported | --bind-to and "
	  "--share say which CPUs a rank gets" },
	{ "--gpus-per-task=1 --gpu-bind closest a",
	  " [a] | ignored: --gpus-per-task 1 (each rank gets one GPU) | ignored: "
	  "--gpu-bind closest (ranks run next to their GPUs)" },
	{ "--gpus-per-task=2 a",
	  " error '--gpus-per-task 2' of srun is not supported | " ONE_GPU },
	{ "--gres gpu:8 a", " error '--gres' of srun is not supported | " ONE_GPU },
	{ "--distribution cyclic a", " bynode=1 [a]" },
	{ "--distribution arbitrary a",
	  " error '--distribution arbitrary' of srun is not supported | see --map-by" },
	{ "--input all a", " stdin=all [a]" },
	{ "--input 3 a", " stdin=3 [a]" },
	{ "--input file a", " error '--input' of srun is not supported | use < FILE; "
			    "--stdin says which rank reads it" },
	{ "-o out a", " error '-o' of srun is not supported | use > FILE, or "
		      "--output-filename DIR, which writes a file for each rank" },
	{ "--output=out-%t.txt a",
	  " error '--output out-%t.txt' of Open MPI is not supported | --output takes "
	  "tag and timestamp; --output-filename DIR writes files" },
	{ "-u --label a",
	  " [a] | ignored: -u (lines are shown as they come; --pty makes C programs "
	  "write line by line)" },
	{ "-K a", " [a] | ignored: -K (the first failure ends the job)" },
	{ "--kill-on-bad-exit=1 a",
	  " [a] | ignored: --kill-on-bad-exit (the first failure ends the job)" },
	{ "--kill-on-bad-exit=0 a", " keepgoing=1 [a]" },
	{ "--mpi=none a", " mpi=3 [a]" },
	{ "--mpi=pmi1 a", " mpi=2 [a]" },
	{ "--mpi=pmix a", " mpi=1 [a]" },
	{ "--mpi=pmi2 a",
	  " error --mpi: 'pmi2' is not one of auto, pmix, pmi1, none | did you mean "
	  "'pmix'?" },
	{ "-t 30 a",
	  " error '-t' of torchrun and srun is not supported | use --timeout "
	  "for a time limit, --log-dir for files" },
	{ "--time=30 a", " error '--time' of srun is not supported | use --timeout, as "
			 "in --timeout 90m" },
	{ "--partition gpu a", " error '--partition' of srun is not supported | "
			       "allocate hosts with salloc or "
			       "sbatch, and name them with -H" },
	{ "--job-name x --exclusive a",
	  " [a] | ignored: --job-name (it is for Slurm) | ignored: --exclusive (it is "
	  "for Slurm)" },
	{ "--gloo=3 a", " error '--gloo' takes no value, but has '3'" },
};

START_TEST(test_line)
{
	char *got = read_with(NULL, lines[_i].line, "A=a B=b C=c NAME=n");

	ck_assert_msg(!strcmp(got, lines[_i].want), "%s:\n%s\n%s", lines[_i].line, got,
		      lines[_i].want);
	free(got);
}
END_TEST

START_TEST(rank_sets)
{
	struct rank_set some = { 0 }, all = { .all = true };
	uint32_t rank;
	struct str text = { 0 };

	ck_assert(!rank_set_has(&some, 0));
	ck_assert_uint_eq(rank_set_count(&some), 0);
	rank_set_add(&some, 65);
	rank_set_add(&some, 0);
	rank_set_add(&some, 1 << 20);
	rank_set_add(&some, 65);
	rank_set_add(&some, 66);
	ck_assert(rank_set_has(&some, 0));
	ck_assert(!rank_set_has(&some, 1));
	ck_assert(rank_set_has(&some, 65));
	ck_assert(!rank_set_has(&some, 128));
	ck_assert(!rank_set_has(&some, 0xffffffffu));
	ck_assert(rank_set_has(&all, 7));
	ck_assert_uint_eq(rank_set_count(&some), 4);
	ck_assert(rank_set_first(&some, 0, &rank) && rank == 0);
	ck_assert(rank_set_first(&some, 1, &rank) && rank == 65);
	ck_assert(rank_set_first(&some, 67, &rank) && rank == 1 << 20);
	ck_assert(!rank_set_first(&some, (1 << 20) + 1, &rank));
	ck_assert(!rank_set_first(&all, 0, &rank));
	rank_set_print(&text, &some);
	ck_assert_str_eq(text.s, "0,65-66,1048576");
	rank_set_free(&some);
	ck_assert(!rank_set_has(&some, 0));
	str_free(&text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("options");
	TCase *t = tcase_create("options");
	SRunner *run;
	int failed;

	tcase_add_loop_test(t, test_line, 0, (int)(sizeof lines / sizeof *lines));
	tcase_add_test(t, rank_sets);
	suite_add_tcase(s, t);
	run = srunner_create(s);
	srunner_run_all(run, CK_NORMAL);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	return failed != 0;
}
