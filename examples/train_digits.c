/* train_digits.c - data-parallel training of a small network on handwritten digits.
 *
 *     cc -O2 -o train_digits train_digits.c $(pkg-config --cflags --libs berth) -lm
 *     runner -np 2 ./train_digits [EPOCHS]
 *
 * Every rank takes its share of each batch; one allreduce a step sums the gradients,
 * and all ranks take the same step.  The batches do not depend on the number of ranks,
 * nor does what is printed: sums of 64-bit numbers in another order differ far behind
 * the fourth decimal. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <berth.h>

enum {
	PIXELS = 64,
	HIDDEN = 64,
	DIGITS = 10,
	BATCH = 50,    /* of the whole job */
	HELD_OUT = 297 /* digits that only judge the result */
};

/* A digit's character, then those of its pixels. */
static const char *const pictures[] = {
#include "data/digits.inc"
};
enum { PICTURES = sizeof pictures / sizeof pictures[0], TRAINED = PICTURES - HELD_OUT };

/* What is learned, and the derivative of the loss by each of it. */
struct network {
	double hidden[HIDDEN][PIXELS], hidden_bias[HIDDEN];
	double output[DIGITS][HIDDEN], output_bias[DIGITS];
};
enum { PARAMETERS = sizeof(struct network) / sizeof(double) };

struct step {
	struct network gradient;
	double loss;
};

static void must(berth_result result)
{
	if (!result)
		return;
	fprintf(stderr, "train_digits: %s\n", berth_last_error()->text);
	exit(1);
}

/* ---- the network ---- */

static int label(const char *picture)
{
	return picture[0] - '0';
}

static void pixels(const char *picture, double *x)
{
	for (int i = 0; i < PIXELS; i++) {
		char c = picture[1 + i];

		x[i] = (c <= '9' ? c - '0' : c - 'a' + 10) / 16.0;
	}
}

/* H: what the hidden layer says to X, P: how probable each digit is. */
static void forward(const struct network *n, const double *x, double *h, double *p)
{
	double most = -INFINITY, sum = 0;

	for (int i = 0; i < HIDDEN; i++) {
		h[i] = n->hidden_bias[i];
		for (int j = 0; j < PIXELS; j++)
			h[i] += n->hidden[i][j] * x[j];
		h[i] = fmax(h[i], 0);
	}
	for (int i = 0; i < DIGITS; i++) {
		p[i] = n->output_bias[i];
		for (int j = 0; j < HIDDEN; j++)
			p[i] += n->output[i][j] * h[j];
		most = fmax(most, p[i]);
	}
	for (int i = 0; i < DIGITS; i++)
		sum += p[i] = exp(p[i] - most);
	for (int i = 0; i < DIGITS; i++)
		p[i] /= sum;
}

/* Adds to S what one picture says. */
static void learn(const struct network *n, const char *picture, struct step *s)
{
	double x[PIXELS], h[HIDDEN], p[DIGITS], back[HIDDEN] = { 0 };
	struct network *g = &s->gradient;

	pixels(picture, x);
	forward(n, x, h, p);
	s->loss -= log(p[label(picture)]);
	p[label(picture)] -= 1;
	for (int i = 0; i < DIGITS; i++) {
		g->output_bias[i] += p[i];
		for (int j = 0; j < HIDDEN; j++) {
			g->output[i][j] += p[i] * h[j];
			back[j] += p[i] * n->output[i][j];
		}
	}
	for (int i = 0; i < HIDDEN; i++) {
		if (h[i] == 0)
			continue;
		g->hidden_bias[i] += back[i];
		for (int j = 0; j < PIXELS; j++)
			g->hidden[i][j] += back[i] * x[j];
	}
}

static int guess(const struct network *n, const char *picture)
{
	double x[PIXELS], h[HIDDEN], p[DIGITS];
	int best = 0;

	pixels(picture, x);
	forward(n, x, h, p);
	for (int i = 1; i < DIGITS; i++)
		if (p[i] > p[best])
			best = i;
	return best;
}

/* ---- the training ---- */

/* The next of a row of numbers that SEED begins: 0 <= it < 1. */
static double dice(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (double)(*seed >> 33) / 2147483648.0;
}

static void begin(struct network *n)
{
	double *hidden = n->hidden[0], *output = n->output[0];
	uint64_t seed = 1;

	for (int i = 0; i < HIDDEN * PIXELS; i++)
		hidden[i] = (2 * dice(&seed) - 1) / sqrt(PIXELS);
	for (int i = 0; i < DIGITS * HIDDEN; i++)
		output[i] = (2 * dice(&seed) - 1) / sqrt(HIDDEN);
}

/* The same on every rank. */
static void shuffle(int *order, int epoch)
{
	uint64_t seed = (uint64_t)epoch;

	for (int i = 0; i < TRAINED; i++)
		order[i] = HELD_OUT + i;
	for (int i = TRAINED - 1; i > 0; i--) {
		int other = (int)(dice(&seed) * (i + 1)), was = order[i];

		order[i] = order[other];
		order[other] = was;
	}
}

/* One pass over the data.  S: memory for a step.  Returns the mean loss. */
static double epoch(struct network *n, struct network *speed, struct step *s,
		    int number)
{
	const double one_of_batch = 1.0 / BATCH;
	struct berth_desc sum =
		BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F64, .op = BERTH_SUM,
			   .name = "gradient", .in = s, .out = s,
			   .count = PARAMETERS + 1, .postscale = &one_of_batch);
	double *value = (double *)n, *v = (double *)speed, *g = (double *)&s->gradient;
	double loss = 0;
	int order[TRAINED], steps = TRAINED / BATCH;

	shuffle(order, number);
	for (int i = 0; i < steps; i++) {
		memset(s, 0, sizeof *s);
		for (int j = berth_rank(); j < BATCH; j += berth_size())
			learn(n, pictures[order[i * BATCH + j]], s);
		must(berth_run(&sum, -1, NULL));
		for (int j = 0; j < PARAMETERS; j++) {
			v[j] = 0.9 * v[j] + g[j];
			value[j] -= 0.1 * v[j];
		}
		loss += s->loss;
	}
	return loss / steps;
}

static void train(int epochs)
{
	static struct network n, speed;
	struct berth_desc same =
		BERTH_DESC(.kind = BERTH_BROADCAST, .type = BERTH_F64,
			   .name = "network", .in = &n, .out = &n, .count = PARAMETERS);
	struct step *s = berth_alloc(sizeof *s, BERTH_HOST, 0);
	int right = 0;

	if (!s)
		must(BERTH_MEMORY);
	if (berth_rank() == 0)
		begin(&n);
	must(berth_run(&same, -1, NULL));
	for (int i = 0; i < epochs; i++) {
		double loss = epoch(&n, &speed, s, i);

		if (berth_rank() == 0)
			printf("epoch %d loss %.4f\n", i, loss);
	}
	for (int i = 0; i < HELD_OUT; i++)
		right += guess(&n, pictures[i]) == label(pictures[i]);
	if (berth_rank() == 0)
		printf("accuracy %.3f on %d digits it never saw\n",
		       (double)right / HELD_OUT, HELD_OUT);
	berth_free(s);
}

int main(int argc, char **argv)
{
	int epochs = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 5;
	char host[256] = "";

	if (argc > 2 || epochs < 1) {
		fprintf(stderr, "usage: train_digits [EPOCHS]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	must(berth_init(NULL));
	gethostname(host, sizeof host - 1);
	printf("rank %d of %d on %s\n", berth_rank(), berth_size(), host);
	train(epochs);
	must(berth_shutdown());
	return 0;
}
