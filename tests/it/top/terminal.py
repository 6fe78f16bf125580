"""A terminal with a program in it: does what its steps say, and tells what was shown, how it ended, and whether the terminal is as it was.

Arguments: a JSON list of steps, then the program and its arguments. A step is ["until", text], which waits for a text to stand on the screen,
["until", text, other], which waits for another to be gone as well, ["send", text], ["signal", number], ["size", rows, columns] or ["say", text],
which goes to stdout at once and is followed by a line that is read from stdin.
"""

import codecs, fcntl, json, os, pty, re, select, signal, struct, sys, termios, time

steps, program = json.loads(sys.argv[1]), sys.argv[2:]
main, side = pty.openpty()


class Screen:
    """What stands where: a program writes only the cells that change, so that no text of its output need be whole."""

    def __init__(self, rows, columns):
        self.rows, self.columns, self.rest = rows, columns, ""
        self.clear()

    def clear(self):
        self.cells = [[" "] * self.columns for _ in range(self.rows)]
        self.row = self.column = 0

    def write(self, text):
        text = self.rest + text
        # An escape sequence may arrive in two parts.
        cut = re.search(r"\x1b(\[[0-9;?]*)?$", text)
        self.rest = cut.group() if cut else ""
        for sequence, kind, one in re.findall(r"\x1b\[([0-9;?]*)([A-Za-z])|(.)", text[: len(text) - len(self.rest)], re.S):
            self.obey(sequence, kind) if kind else self.put(one)

    def obey(self, sequence, kind):
        if kind == "H":
            row, column = (sequence or "1;1").split(";")
            self.row, self.column = int(row) - 1, int(column) - 1
        elif kind == "J" or sequence == "?1049":
            self.clear()

    def put(self, one):
        if one == "\r":
            self.column = 0
        elif one == "\n":
            self.row += 1
        else:
            if self.row < self.rows and self.column < self.columns:
                self.cells[self.row][self.column] = one
            self.column += 1
        while self.row >= self.rows and one == "\n":
            self.cells = self.cells[1:] + [[" "] * self.columns]
            self.row -= 1

    def text(self):
        return "\n".join("".join(row) for row in self.cells)


def size(rows, columns):
    global screen
    screen = Screen(rows, columns)
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

shown = ""
decode = codecs.getincrementaldecoder("utf-8")("replace").decode


def read(wait):
    global shown
    if select.select([main], [], [], wait)[0]:
        text = decode(os.read(main, 65536))
        shown += text
        screen.write(text)


def stands(text, other=None):
    now = screen.text()
    return text in now and (other is None or other not in now)


ended, missing = None, None
for step in steps:
    if step[0] == "until":
        end = time.time() + 60
        while not stands(*step[1:]):
            read(0.1)
            if time.time() > end:
                missing = [step, screen.text()]
                break
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
