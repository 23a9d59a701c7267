/* libssh.h - libssh, loaded when the first remote host is asked for.
 *
 * Linking it would make it a condition for installing runner, and cost every start time
 * (1.4 ms).  Callers write lib->ssh_connect(s).  One row in LIBSSH_FUNCTIONS makes a
 * function usable.  If its headers are missing at build time, or the library at run
 * time, libssh_load() says so and launcher/transport/openssh.c does the work. */
#ifndef BERTH_LAUNCHER_TRANSPORT_LIBSSH_H
#define BERTH_LAUNCHER_TRANSPORT_LIBSSH_H

#if __has_include(<libssh/callbacks.h>)
#define HAVE_LIBSSH 1
#include <libssh/callbacks.h>
#include <libssh/libssh.h>

#define LIBSSH_FUNCTIONS(X)                                                            \
	X(ssh_new)                                                                     \
	X(ssh_free)                                                                    \
	X(ssh_options_set)                                                             \
	X(ssh_options_get)                                                             \
	X(ssh_options_get_port)                                                        \
	X(ssh_options_parse_config)                                                    \
	X(ssh_set_blocking)                                                            \
	X(ssh_connect)                                                                 \
	X(ssh_disconnect)                                                              \
	X(ssh_is_connected)                                                            \
	X(ssh_get_error)                                                               \
	X(ssh_get_fd)                                                                  \
	X(ssh_get_poll_flags)                                                          \
	X(ssh_get_server_publickey)                                                    \
	X(ssh_get_publickey_hash)                                                      \
	X(ssh_get_fingerprint_hash)                                                    \
	X(ssh_clean_pubkey_hash)                                                       \
	X(ssh_string_free_char)                                                        \
	X(ssh_key_free)                                                                \
	X(ssh_key_type)                                                                \
	X(ssh_key_type_to_char)                                                        \
	X(ssh_pki_import_privkey_file)                                                 \
	X(ssh_pki_export_pubkey_base64)                                                \
	X(ssh_userauth_none)                                                           \
	X(ssh_userauth_list)                                                           \
	X(ssh_userauth_agent)                                                          \
	X(ssh_userauth_publickey)                                                      \
	X(ssh_userauth_publickey_auto)                                                 \
	X(ssh_channel_new)                                                             \
	X(ssh_channel_free)                                                            \
	X(ssh_channel_open_session)                                                    \
	X(ssh_channel_request_exec)                                                    \
	X(ssh_channel_write)                                                           \
	X(ssh_channel_window_size)                                                     \
	X(ssh_channel_send_eof)                                                        \
	X(ssh_set_channel_callbacks)                                                   \
	X(ssh_remove_channel_callbacks)                                                \
	X(ssh_event_new)                                                               \
	X(ssh_event_free)                                                              \
	X(ssh_event_add_session)                                                       \
	X(ssh_event_remove_session)                                                    \
	X(ssh_event_dopoll)

struct libssh {
#define X(name) __typeof__(&(name)) name;
	LIBSSH_FUNCTIONS(X)
#undef X
};
#else
struct libssh;
#endif

/* The library's functions, loaded once; or NULL with the reason in *WHY. */
const struct libssh *libssh_load(const char **why);

#endif
