#!/usr/bin/env python3
"""complete.py bash|zsh FOLDER LINE: the command line that a user has in that shell, in a terminal,
after LINE and a TAB.  FOLDER has the completions of runner: `bash`, and `_runner` for zsh."""
import os
import pty
import select
import sys
import tempfile

shell, folder, line = sys.argv[1:]
home = tempfile.mkdtemp()
result = os.path.join(home, "line")
READY = b"<ready>"

if shell == "bash":
    rc = os.path.join(home, "rc")
    with open(rc, "w") as f:
        f.write(f"""
source {folder}/bash
show() {{ printf %s "$READLINE_LINE" > {result}; exit; }}
bind -x '"\\C-g": show'
bind 'set bell-style none'
bind 'set enable-bracketed-paste off'
PS1='<ready>'
""")
    command = ["bash", "--noprofile", "--rcfile", rc, "-i"]
else:
    with open(os.path.join(home, ".zshrc"), "w") as f:
        f.write(f"""
fpath=({folder} $fpath)
autoload -Uz compinit
compinit -u -D
unsetopt beep auto_list auto_menu zle_bracketed_paste 2> /dev/null
show() {{ print -rn -- "$BUFFER" > {result}; exit }}
zle -N show
bindkey '^G' show
PS1='<ready>'
""")
    command = ["zsh", "--no-global-rcs", "-i"]

pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(HOME=home, ZDOTDIR=home, TERM="xterm")
    os.execvp(command[0], command)
seen, typed = b"", False
while True:
    if not select.select([terminal], [], [], 60)[0]:
        sys.exit(f"{shell} says nothing more: {seen!r}")
    try:
        some = os.read(terminal, 4096)
    except OSError:  # the shell has ended
        break
    if not some:
        break
    seen += some
    # PS1 is echoed once as the rc file is read; the prompt comes at the end of a line
    if not typed and seen.rstrip(b"\x1b[?2004hKJm0 \r").endswith(READY):
        os.write(terminal, line.encode() + b"\t\x07")
        typed = True
os.waitpid(pid, 0)
try:
    print(open(result).read())
except FileNotFoundError:
    sys.exit(f"no line from {shell}: {seen!r}")
