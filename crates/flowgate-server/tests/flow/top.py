"""Runs a command under a pseudo-terminal, presses keys, resizes, and tells what it saw as JSON.

Standard input has a line of JSON for each step: {"wait": text}, {"press": text},
{"resize": [rows, columns]}, {"signal": number} or {"until": port}, which waits until
what listens there closes the connection.
"""
import codecs
import fcntl
import json
import os
import pty
import select
import socket
import struct
import sys
import termios
import time

DEADLINE = time.monotonic() + 60


def resize(terminal, rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def echo(terminal):
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


def main():
    steps = [json.loads(line) for line in sys.stdin if line.strip()]
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(sys.argv[1], sys.argv[1:])
    resize(terminal, 24, 80)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    seen, mark, echoes = "", 0, []

    def read(until):
        nonlocal seen
        ready, _, _ = select.select([terminal], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(terminal, 65536)
        except OSError:
            return False
        seen += decoder.decode(data)
        return bool(data)

    for step in steps:
        if "press" in step:
            mark = len(seen)
            echoes.append(echo(terminal))
            os.write(terminal, step["press"].encode())
        elif "signal" in step:
            echoes.append(echo(terminal))
            os.kill(child, step["signal"])
        elif "until" in step:
            with socket.create_connection(("127.0.0.1", step["until"]), timeout=60) as other:
                other.recv(1)
        elif "resize" in step:
            mark = len(seen)
            resize(terminal, *step["resize"])
        else:
            while step["wait"] not in seen[mark:]:
                if not read(DEADLINE):
                    print(json.dumps({"missing": step["wait"], "seen": seen[-4000:]}))
                    os.kill(child, 9)
                    sys.exit(1)
    while read(DEADLINE):
        pass
    _, status = os.waitpid(child, 0)
    echoes.append(echo(terminal))
    print(json.dumps({"status": os.waitstatus_to_exitcode(status), "seen": seen, "echo": echoes}))


main()
