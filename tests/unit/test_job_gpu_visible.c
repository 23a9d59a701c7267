/* gpu_visible.h: --gpu-visible auto, on lines of Python and on the programs of
 * tests/visible/.
 * takes_s: 3 */
#include <check.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/job/gpu_visible.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- one text ---- */

/* WORD NULL: one; else node, found at LINE. */
static const struct {
	const char *text, *word;
	size_t line;
} texts[] = {
	/* a local rank as a device */
	{ "torch.cuda.set_device(local_rank)", "set_device", 1 },
	{ "\n\ntorch.cuda.set_device(\n    int(os.environ['LOCAL_RANK']))",
	  "set_device", 3 },
	{ "torch.cuda.set_device(int(os.getenv(\"LOCAL_RANK\", \"0\")))", "set_device",
	  1 },
	{ "torch.cuda.set_device(args.local_rank)", "set_device", 1 },
	{ "set_device(rank)", "set_device", 1 },
	{ "if x:\n\tset_device(hvd.local_rank())", "set_device", 2 },
	{ "cp.cuda.Device(local_rank).use()", "Device", 1 },
	{ "torch.npu.set_device(LOCAL_RANK)", "set_device", 1 },
	{ "d = f'cuda:{local_rank}'", "cuda", 1 },
	{ "d = f\"cuda:{int(os.environ['LOCAL_RANK'])}\"", "cuda", 1 },
	{ "d = rf'''cuda:{local_rank}'''", "cuda", 1 },
	{ "d = 'cuda:%d' % local_rank", "cuda", 1 },
	{ "d = 'cuda:{}'.format(hvd.local_rank())", "cuda", 1 },
	{ "d = 'cuda:' + str(local_rank)", "cuda", 1 },
	{ "d = torch.device('cuda', local_rank)", "device", 1 },
	{ "d = torch.device('cuda', args.local_rank if n > 1 else 0)", "device", 1 },
	{ "m = DDP(m, device_ids=[local_rank], output_device=local_rank)", "device_ids",
	  1 },
	{ "m = DDP(m, device_ids=[self.gpu_id])", "device_ids", 1 },
	{ "m = m.to(local_rank)", "to", 1 },
	{ "x = x.cuda(local_rank, non_blocking=True)", "cuda", 1 },
	{ "c.visible_device_list = str(hvd.local_rank())", "visible_device_list", 1 },
	{ "GPUOptions(visible_device_list=str(hvd.local_rank()))",
	  "visible_device_list", 1 },
	{ "set_visible_devices(gpus[local_rank], 'GPU')", "set_visible_devices", 1 },
	{ "device = local_rank", "device", 1 },
	/* through a name */
	{ "gpu = int(os.environ['LOCAL_RANK'])\ntorch.cuda.set_device(gpu)",
	  "set_device", 2 },
	{ "args.gpu = args.local_rank\nd = f'cuda:{args.gpu}'", "cuda", 2 },
	{ "g: int = hvd.local_rank(); x.cuda(g)", "cuda", 1 },
	{ "b = a\na = local_rank\nset_device(b)", "set_device", 3 },
	{ "if a: g = 0\nelse: g = local_rank\nx.cuda(g)", "cuda", 3 },
	{ "i = int(os.environ['SLURM_LOCALID'])\nset_device(i)", "set_device", 2 },
	{ "i = int(os.environ['OMPI_COMM_WORLD_LOCAL_RANK'])\nset_device(i)",
	  "set_device", 2 },
	/* libraries that do it for the script */
	{ "import pytorch_lightning as pl", "pytorch_lightning", 1 },
	{ "import os\nfrom lightning.pytorch import Trainer", "lightning", 2 },
	{ "from transformers import (\n    AutoModel,\n    TrainingArguments)",
	  "TrainingArguments", 3 },
	{ "t = transformers.TrainingArguments('out')", "TrainingArguments", 1 },
	{ "def f():\n\tfrom trl import SFTTrainer", "trl", 2 },
	{ "a = Accelerator()", "Accelerator", 1 },
	{ "import deepspeed", "deepspeed", 1 },
	{ "from deepspeed.ops import X", "deepspeed", 1 },

	/* not as a device */
	{ "", NULL, 0 },
	{ "# torch.cuda.set_device(local_rank)", NULL, 0 },
	{ "x = 1  # set_device(LOCAL_RANK)", NULL, 0 },
	{ "'''\nset_device(local_rank)\n'''", NULL, 0 },
	{ "s = \"set_device(local_rank)\"", NULL, 0 },
	{ "s = 'it\\'s set_device(local_rank)'", NULL, 0 },
	{ "s = b'#'; t = r'\\' # '", NULL, 0 },
	{ "if local_rank == 0: print('first')", NULL, 0 },
	{ "local_rank = int(os.environ['LOCAL_RANK'])", NULL, 0 },
	{ "print(f'rank {local_rank} set_device({x})')", NULL, 0 },
	{ "d = torch.device('cuda' if args.local_rank == -1 else 'cpu')", NULL, 0 },
	{ "d = torch.device('cuda' if 0 != local_rank else 'cpu')", NULL, 0 },
	{ "d = torch.device('cuda:0' if not local_rank else 'cuda')", NULL, 0 },
	{ "if 'LOCAL_RANK' in os.environ: d = torch.device('cuda')", NULL, 0 },
	{ "torch.cuda.set_device(0)", NULL, 0 },
	{ "torch.cuda.set_device(args.gpu)", NULL, 0 },
	{ "torch.cuda.set_device(rank % torch.cuda.device_count())", NULL, 0 },
	{ "d = torch.cuda.current_device()\nDDP(m, device_ids=[d])", NULL, 0 },
	{ "DDP(m, device_ids=[torch.cuda.current_device()])", NULL, 0 },
	{ "DataParallel(m, device_ids=[0, 1])", NULL, 0 },
	{ "DDP(m, device_ids=None)", NULL, 0 },
	{ "DDP(m, device_ids=[0])", NULL, 0 },
	{ "set_visible_devices([], 'GPU')", NULL, 0 },
	{ "set_visible_devices(gpus[0], 'GPU')", NULL, 0 },
	{ "set_visible_devices(gpus[i], 'GPU')", NULL, 0 },
	{ "set_visible_devices([gpus[0]], 'GPU')", NULL, 0 },
	{ "c.visible_device_list = '0'", NULL, 0 },
	{ "d = f'cuda:{args.gpu}'", NULL, 0 },
	{ "def set_device(local_rank):\n    pass", NULL, 0 },
	{ "def f(m, device=local_rank): pass", NULL, 0 },
	{ "f(local_rank=local_rank)", NULL, 0 },
	{ "device = f(local_rank=0)", NULL, 0 },
	{ "x.to(device)", NULL, 0 },
	{ "class Trainer:\n    pass\nTrainer()", NULL, 0 },
	{ "from trainer import Trainer\nTrainer()", NULL, 0 },
	{ "from transformers import AutoModel", NULL, 0 },
	{ "from models.lightning import Net", NULL, 0 },
	{ "lightning = 3", NULL, 0 },
	{ "if 'LOCAL_RANK' in os.environ: gpu = int(os.environ['LOCAL_RANK'])\n"
	  "x.cuda(os.environ['GPU'])",
	  NULL, 0 },
	{ "ap.add_argument('--deepspeed'); use(args.deepspeed, deepspeed=None)", NULL,
	  0 },
	{ "seed = make(local_rank)\nx.to(seed)", NULL, 0 },

	/* not Python, or cut off */
	{ "'", NULL, 0 },
	{ "f'cuda:{", NULL, 0 },
	{ "f'{f'{f'{", NULL, 0 },
	{ "((((((", NULL, 0 },
	{ "\\", NULL, 0 },
	{ "set_device(local_rank", "set_device", 1 },
	{ "x = '\nset_device(local_rank)", "set_device", 2 },
	{ "x = '\ndef set_device(local_rank): pass", NULL, 0 },
	{ ".local_rank = to(device=", NULL, 0 },
	{ "device_ids=[", NULL, 0 },
	{ "s = f'{x!r:>{w}} {{' # '\nset_device(local_rank)", "set_device", 2 },
	{ "a = [\n1,\n2]\n\\\n\nset_device(local_rank)", "set_device", 6 },
};

START_TEST(scan)
{
	const char *word = texts[_i].word;
	struct visible v = { .mode = VISIBLE_ONE };

	visible_scan(&v, "f", texts[_i].text, strlen(texts[_i].text));
	ck_assert_msg(v.mode == (word ? VISIBLE_NODE : VISIBLE_ONE), "%s: %s",
		      texts[_i].text, v.word);
	ck_assert_pstr_eq(v.word, word);
	ck_assert_pstr_eq(v.file, word ? "f" : NULL);
	ck_assert_uint_eq(v.line, texts[_i].line);
	visible_free(&v);
}
END_TEST

/* The slowest texts known: much is looked at for each of many calls and names. */
START_TEST(scan_takes_linear_time)
{
	static const char *const parts[] = { "set_device(device_ids=[f'{f\"",
					     "device(",
					     "a=",
					     "cuda(",
					     "'cuda:'+",
					     "\n.",
					     "f'{" };
	const clock_t begin = clock(); /* of this process: others may run, too */

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		struct visible v = { .mode = VISIBLE_ONE };
		struct str s = { 0 };

		for (int k = 0; k < 70; k++)
			str_addf(&s, "a%d = device_count()\n", k);
		while (s.len < VISIBLE_FILE_BYTES)
			str_add(&s, parts[i]);
		visible_scan(&v, "f", s.s, VISIBLE_FILE_BYTES);
		str_free(&s);
		visible_free(&v);
	}
	ck_assert_int_lt((clock() - begin) / CLOCKS_PER_SEC, 20);
}
END_TEST

/* ---- command lines, run in tests/visible ---- */

static const struct {
	const char *command; /* words, cut at '|' */
	const char *decided; /* "file:line word" for node, NULL for one */
} commands[] = {
	{ "python|horovod_torch.py", "horovod_torch.py:6 set_device" },
	{ "python3|-u|horovod_tf2.py|--x", "horovod_tf2.py:9 set_visible_devices" },
	{ "python3.11|tf1.py", "tf1.py:7 visible_device_list" },
	{ "python|ddp.py", "ddp.py:10 device" },
	{ "python|ddp_fstring.py", "ddp_fstring.py:3 device" },
	{ "python|ddp_args.py", "ddp_args.py:5 device_ids" },
	{ "python|ddp_modulo.py", NULL },
	{ "python|lightning.py", "lightning.py:1 lightning" },
	{ "python|transformers_trainer.py",
	  "transformers_trainer.py:1 TrainingArguments" },
	{ "python|own_trainer.py", NULL },
	{ "python|accelerate_script.py", "accelerate_script.py:3 Accelerator" },
	{ "python|deepspeed_script.py", "deepspeed_script.py:1 deepspeed" },
	{ "python|jax_script.py", NULL },
	{ "python|jax_local_ids.py", "jax_local_ids.py:4 local_device_ids" },
	{ "python|comment_only.py", NULL },
	{ "python|print_only.py", NULL },
	{ "python|no_gpu_choice.py", NULL },
	{ "python|-W|ignore|-X|dev|-OO|ddp.py", "ddp.py:10 device" },
	{ "python|-c|import torch; torch.cuda.set_device(local_rank)",
	  "-c:1 set_device" },
	{ "python|-c|print(1)|ddp.py", NULL },
	{ "python|gone.py", NULL },
	{ "python|-W", NULL },
	{ "python", NULL },
	{ "./ddp.py", "./ddp.py:10 device" },
	{ "ddp.py|a", "ddp.py:10 device" },
	/* -m */
	{ "python|-m|pkg.cli|--epochs|3", "pkg/cli.py:6 set_device" },
	{ "python|-um|pkg.cli", "pkg/cli.py:6 set_device" },
	{ "python|-mpkg.cli", "pkg/cli.py:6 set_device" },
	{ "python|-m|bundle", "bundle/__main__.py:5 cuda" },
	{ "python|-m|pkg", NULL }, /* imports what uses a device */
	{ "python|-m|pkg.quiet", NULL },
	{ "python|-m|srcpkg.train", "src/srcpkg/train.py:2 cuda" }, /* PYTHONPATH */
	{ "python|-m|no.such", NULL },
	{ "python|-m|../pkg/cli", NULL },
	{ "python|-m", NULL },
	{ "python|-m|cProfile|-o|out|ddp.py", "ddp.py:10 device" },
	{ "python|-m|torch.distributed.run|ddp.py",
	  "torch.distributed.run:0 torch.distributed.run" },
	/* shells */
	{ "bash|wrapper.sh", "ddp.py:10 device" },
	{ "./wrapper.sh|a|b", "ddp.py:10 device" },
	{ "bash|-eo|pipefail|wrapper_args.sh|python|ddp.py", "ddp.py:10 device" },
	{ "bash|wrapper_args.sh|python|print_only.py", NULL },
	{ "sh|wrapper_one.sh", NULL },
	{ "sh|gone.sh", NULL },
	{ "sh", NULL },
	{ "sh|-c|for i in 1; do python ddp.py; done", "ddp.py:10 device" },
	{ "bash|-lc|A='b c' exec python -u \\\n ddp.py > log 2>&1",
	  "ddp.py:10 device" },
	{ "sh|-c|python print_only.py\npython ddp.py|x|y", "ddp.py:10 device" },
	{ "sh|-c|\"$@\"|sh|python|ddp.py", "ddp.py:10 device" },
	{ "sh|-c|echo python ddp.py", NULL },
	{ "sh|-c|# python ddp.py", NULL },
	{ "sh|-c|# it's one\npython ddp.py", "ddp.py:10 device" },
	{ "sh|-c|echo 'x\npython ddp.py'", NULL },
	{ "sh|-c|python $1|sh|ddp.py", NULL },     /* a variable */
	{ "sh|-c|cd pkg && python ddp.py", NULL }, /* another directory */
	{ "sh|-c|sh wrapper.sh", NULL },           /* a second shell */
	{ "sh|-c", NULL },
	/* wrappers */
	{ "env|A=b|-u|X|python|ddp.py", "ddp.py:10 device" },
	{ "numactl|-N|0|-m|0|python|ddp.py", "ddp.py:10 device" },
	{ "taskset|-c|0-3|bash|wrapper.sh", "ddp.py:10 device" },
	{ "apptainer|exec|--nv|-B|/data|img.sif|python|ddp.py", "ddp.py:10 device" },
	{ "uv|run|--with|torch|ddp.py", "ddp.py:10 device" },
	{ "timeout|10|env|A=b|/usr/bin/python|ddp.py", "ddp.py:10 device" },
	{ "torchrun|--nproc-per-node|2|print_only.py", "torchrun:0 torchrun" },
	{ "accelerate|launch|print_only.py", "accelerate:0 accelerate" },
	{ "echo|python|ddp.py", NULL },
	/* others */
	{ "true", NULL },
	{ "/bin/true", NULL },
	{ "gone", NULL },
	{ "pkg", NULL },
	{ "env", NULL },
	{ "", NULL },
};

static void find(struct visible *v, const char *command, const char *wdir)
{
	char *copy = xstrdup(command), *rest = copy, *word;
	struct strv argv = { 0 }, env = { 0 };

	while ((word = strsep(&rest, "|")))
		strv_add(&argv, word);
	strv_add(&env, "PYTHONPATH=/a:/b:/c:/d:/e:/f:/g:/h:/i:src");
	visible_find(v, &argv, wdir, &env);
	strv_free(&argv);
	strv_free(&env);
	free(copy);
}

/* "file:line word", with "tests/visible/" cut off. */
static char *decided(const struct visible *v)
{
	const char *file = v->file ? v->file : "", *folder = "tests/visible/";

	if (!strncmp(file, folder, strlen(folder)))
		file += strlen(folder);
	return v->file ? xasprintf("%s:%zu %s", file, v->line, v->word)
		       : xstrdup("one");
}

/* In the folder itself, and from another with --wdir. */
START_TEST(follow)
{
	const char *want = commands[_i].decided ? commands[_i].decided : "one";

	for (int here = 0; here < 2; here++) {
		struct visible v = { 0 };
		char *text;

		if (here)
			ck_assert(!chdir("tests/visible"));
		find(&v, commands[_i].command, here ? NULL : "tests/visible");
		text = decided(&v);
		ck_assert_str_eq(text, want);
		ck_assert_int_eq(v.mode,
				 commands[_i].decided ? VISIBLE_NODE : VISIBLE_ONE);
		free(text);
		visible_free(&v);
		visible_free(&v);
	}
}
END_TEST

/* A pipe, a device, a file without an end and a script that names too many files. */
START_TEST(follow_traps)
{
	char dir[] = "/tmp/visible-XXXXXX";
	struct visible v = { 0 };
	char *path;
	FILE *f;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	path = xasprintf("%s/pipe.py", dir);
	ck_assert(!mkfifo(path, 0600));
	find(&v, "python|pipe.py", dir); /* doesn't wait for a writer */
	ck_assert_int_eq(v.mode, VISIBLE_ONE);
	unlink(path);
	free(path);

	find(&v, "python|/dev/zero", NULL);
	ck_assert_int_eq(v.mode, VISIBLE_ONE);
	find(&v, "sh|/dev/tty", NULL);
	ck_assert_int_eq(v.mode, VISIBLE_ONE);

	path = xasprintf("%s/long.py", dir);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	for (int i = 0; i < 2 * VISIBLE_FILE_BYTES; i++)
		fputc('\n', f);
	fputs("set_device(local_rank)\n", f);
	fclose(f);
	find(&v, "python|long.py", dir); /* only its beginning is read */
	ck_assert_int_eq(v.mode, VISIBLE_ONE);
	unlink(path);
	free(path);

	path = xasprintf("%s/loop.sh", dir);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	for (int i = 0; i < 10000; i++)
		fputs("bash loop.sh; python loop.sh; ./loop.sh; \"$@\"\n", f);
	fclose(f);
	find(&v, "bash|loop.sh|sh|loop.sh", dir);
	ck_assert_int_eq(v.mode, VISIBLE_ONE);
	unlink(path);
	free(path);
	rmdir(dir);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gpu_visible");
	TCase *c = tcase_create("gpu_visible");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(c, 100);
	tcase_add_loop_test(c, scan, 0, COUNT(texts));
	tcase_add_test(c, scan_takes_linear_time);
	tcase_add_loop_test(c, follow, 0, COUNT(commands));
	tcase_add_test(c, follow_traps);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
