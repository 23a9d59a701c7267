/* hash.c - the speed of each form of the keyed hash of data (lib/net/net_hash.h).
 *
 *     build/bench/hash [KIB]       of a buffer of KIB, or of 256: it lies in L2
 *
 * Each row is the best of many runs, so that others on the machine count little. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/net/net_hash.h"

enum { RUNS = 2000, SMALL_RUNS = 1000 };

static struct net_hash_key key;
static unsigned char *data;
static volatile unsigned char sink;

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void hash(size_t bytes)
{
	unsigned char out[NET_HASH_BYTES];

	net_hash_once(&key, data, bytes, out);
	sink = out[0];
}

static void poly1305(size_t bytes)
{
	unsigned char out[crypto_onetimeauth_BYTES];

	crypto_onetimeauth(out, data, bytes, (const unsigned char *)key.nh);
	sink = out[0];
}

/* What NH by itself takes, with nothing behind it. */
static void blocks(size_t bytes)
{
	unsigned char out[NH_BYTES] = { 0 };

	for (size_t i = 0; i + NH_MOST_BYTES <= bytes; i += NH_MOST_BYTES)
		nh(key.nh, data + i, NH_MOST_BYTES, out);
	sink = out[0];
}

/* Nanoseconds of one call. */
static double best(void (*of)(size_t bytes), size_t bytes)
{
	const int calls = bytes < 65536 ? SMALL_RUNS : 1;
	double least = 1e18;

	for (int run = 0; run < RUNS; run++) {
		const double from = now_ns();
		double took;

		for (int i = 0; i < calls; i++)
			of(bytes);
		took = (now_ns() - from) / calls;
		if (took < least)
			least = took;
	}
	return least;
}

static void row(const char *name, size_t bytes)
{
	printf("%-8s %7.2f GB/s  NH alone %7.2f   8 B %5.1f ns  64 B %5.1f ns  1 KiB "
	       "%6.1f ns  4 KiB %6.1f ns\n",
	       name, (double)bytes / best(hash, bytes),
	       (double)bytes / best(blocks, bytes), best(hash, 8), best(hash, 64),
	       best(hash, 1024), best(hash, 4096));
}

int main(int argc, char **argv)
{
	static const struct nh_form *const forms[] = {
		&nh_base,
#if defined(__x86_64__)
		&nh_avx2,
		&nh_avx512
#endif
	};
	const size_t bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 256) << 10;

	data = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (!data || sodium_init() < 0)
		return 1;
	randombytes_buf(&key, sizeof key);
	randombytes_buf(data, bytes);
	printf("%zu KiB\n", bytes >> 10);
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		if (nh_choose(forms[i]))
			row(forms[i]->name, bytes);
		else
			printf("%-8s not on this processor\n", forms[i]->name);
	}
	printf("Poly1305 of all (libsodium): %.2f GB/s\n",
	       (double)bytes / best(poly1305, bytes));
	return 0;
}
