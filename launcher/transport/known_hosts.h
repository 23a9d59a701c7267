/* known_hosts.h - the keys that known_hosts files hold for a host.
 *
 * Reads a line as the ssh program does: names, patterns, negations, hashed names,
 * markers.  So the verdict on a host's key is that of ssh, in any number of files.  A
 * line that only ssh can judge (a marker, a key of a rare type) is a reason to use the
 * ssh program for that host.  Each file is read once, and again when it has changed:
 * names without a pattern are found by a binary search, so the cost for a host does not
 * grow with the plain lines.  Source: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT". */
#ifndef BERTH_LAUNCHER_TRANSPORT_KNOWN_HOSTS_H
#define BERTH_LAUNCHER_TRANSPORT_KNOWN_HOSTS_H

#include "common/str.h"

/* In the order of preference. */
enum known_type {
	KNOWN_ED25519,
	KNOWN_ECDSA_256,
	KNOWN_ECDSA_384,
	KNOWN_ECDSA_521,
	KNOWN_RSA,
	KNOWN_TYPES
};

/* A public key as it travels. */
struct known_key {
	enum known_type type;
	bool without_port; /* of the name alone; the host is asked at another port */
	unsigned char *blob;
	size_t n;
};

/* The keys that files hold for one host.  {0} is nothing. */
struct known_keys {
	struct known_key *v;
	size_t n;
	struct str only_ssh; /* "@revoked in FILE", or "" */
};

enum known_verdict { KNOWN_OK, KNOWN_NEW, KNOWN_CHANGED };

/* ---- pure ---- */

struct known_file;

/* The lines of TEXT, which it takes over: N bytes and a NUL.  NAME is the file's, for
 * messages. */
struct known_file *known_file_parse(const char *name, char *text, size_t n);
/* Free F, if nobody else has it. */
void known_file_drop(struct known_file *f);

/* Add to KEYS what F holds for NAME ("n1", "[n1]:2222"). */
void known_file_find(const struct known_file *f, const char *name, bool without_port,
		     struct known_keys *keys);

/* The reason to use the ssh program, if a marked line of F is about NAME.  Fills WHY
 * unless it has a text. */
void known_file_marks(const struct known_file *f, const char *name, struct str *why);

/* The verdict on the key BLOB of N bytes.  A key of the bare name is good at another
 * port as well, if no line has the port. */
enum known_verdict known_keys_judge(const struct known_keys *keys,
				    const unsigned char *blob, size_t n);

/* The host key algorithms to ask for, those of known keys first, comma-separated, with
 * MORE behind ("" for none). */
char *known_keys_algorithms(const struct known_keys *keys, const char *more);

/* The bytes of a key in base64, at most MOST of them, or 0. */
size_t known_key_decode(unsigned char *out, size_t most, const char *base64);

void known_keys_free(struct known_keys *keys);

/* "n1", or "[n1]:2222" for another port than 22; in lower case. */
char *known_name(const char *host, int port);

/* ---- files; any thread ---- */

/* The file PATH as it is now; drop it.  A missing file is empty. */
struct known_file *known_file_get(const char *path);

/* Append a line for NAME with the key TYPE BASE64 to PATH; HASHED hides the name.
 * Makes the directory SSH_DIR if PATH is in it.  0, or -1 with errno. */
int known_hosts_add(const char *path, const char *ssh_dir, const char *name,
		    const char *type, const char *base64, bool hashed);

#endif
