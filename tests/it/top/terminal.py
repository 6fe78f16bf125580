"""A terminal with a program in it: does what its steps say, and tells what was shown, how it ended, and whether the terminal is as it was.

Arguments: a JSON list of steps, then the program and its arguments. A step is ["until", text], ["send", text], ["signal", number],
["size", rows, columns] or ["say", text], which goes to stdout at once and is followed by a line that is read from stdin.
"""

import fcntl, json, os, pty, re, select, signal, struct, sys, termios, time

steps, program = json.loads(sys.argv[1]), sys.argv[2:]
main, side = pty.openpty()


def size(rows, columns):
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


size(30, 120)
before = termios.tcgetattr(side)
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(side, termios.TIOCSCTTY, 0)
    for fd in (0, 1, 2):
        os.dup2(side, fd)
    os.execv(program[0], program)

shown, mark = "", 0


def read(wait):
    global shown
    if select.select([main], [], [], wait)[0]:
        shown += os.read(main, 65536).decode("utf-8", "replace")


def plain(text):
    # A move of the cursor ends what was written side by side.
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", text)


ended, missing = None, None
for step in steps:
    if step[0] == "until":
        end = time.time() + 60
        while step[1] not in plain(shown)[mark:]:
            read(0.1)
            if time.time() > end:
                missing = step[1]
                break
        mark = max(mark, plain(shown).find(step[1], mark) + len(step[1]))
    elif step[0] == "send":
        os.write(main, step[1].encode())
    elif step[0] == "signal":
        os.kill(pid, step[1])
    elif step[0] == "size":
        size(step[1], step[2])
        os.kill(pid, signal.SIGWINCH)
    elif step[0] == "say":
        print(json.dumps(step[1]), flush=True)
        sys.stdin.readline()
    if missing:
        break

end = time.time() + 30
while time.time() < end:
    read(0.05)
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        ended = os.waitstatus_to_exitcode(status)
        break
else:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
for _ in range(20):
    read(0.02)
after = termios.tcgetattr(side)
print(json.dumps({"code": ended, "shown": shown, "missing": missing, "restored": before[:4] == after[:4]}), flush=True)
