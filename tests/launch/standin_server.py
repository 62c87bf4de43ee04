"""A stand-in server: python standin_server.py PORT [deaf] [children] [die] [orphaned]."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        facts = {
            "env": dict(os.environ),
            "cwd": str(Path.cwd()),
            "uid": os.getuid(),
            "umask": read_umask(),
            "limits": {
                "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),
                "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK),
            },
            "children": CHILDREN,
            "key": read_key(),
        }
        body = json.dumps(facts).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def read_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_key():
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        return None
    key = Path(folder, "key")
    modes = [path.stat().st_mode & 0o777 for path in (Path(folder), key)]
    return [key.read_text(), *modes, folder]


def start_daemon():
    """A grandchild in a session of its own, deaf to SIGTERM, whose parent has ended."""
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.setsid()\n"
        "pid = os.fork()\n"
        "if pid: print(pid, flush=True); os._exit(0)\n"
        "os.close(1)\n"
        "time.sleep(600)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout
    return int(out)


def main():
    words = sys.argv[2:]
    print("hello from the server", flush=True)
    if "children" in words:
        CHILDREN.extend(start_daemon() for _ in range(2))
    if "orphaned" in words:  # its workers are dead, and it does not look at them
        DEAD.append(subprocess.Popen(["/bin/sh", "-c", "exit 126"]))
    if "die" in words:
        sys.exit("the server dies on purpose")
    if "deaf" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer)
    server.serve_forever()
    print("goodbye", flush=True)


CHILDREN: list[int] = []
DEAD: list[subprocess.Popen[bytes]] = []
main()
