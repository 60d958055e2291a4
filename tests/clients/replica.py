"""A replica of `kakeya serve` with the demo model, on a port of its own."""

import pathlib
import socket
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Replica:
    def __init__(self, kakeya, *flags):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = [kakeya, "serve", "--port", str(self.port), "--model", ROOT / "models/demo", "--threads", "1", *flags]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait_until_ready(self):
        for _ in range(400):
            try:
                urllib.request.urlopen(f"{self.url}/readyz")
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("a replica does not get ready")

    def drain(self):
        self.process.terminate()

    def kill(self):
        self.process.kill()
        self.process.wait()
