"""`kakeya serve` as a process of its own: one that a test begins and ends, and one that is killed and begun anew;
HAProxy in front of several."""

import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """`kakeya serve` with the demo model or another one (None: as the flags say), on a port that it chooses. Its end is
    part of the test."""

    def __init__(self, kakeya, *flags, model=ROOT / "models/demo"):
        which = [] if model is None else ["--model", model]
        self.process = subprocess.Popen([kakeya, "serve", "--port", "0", *which, *flags], stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().split()[0]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def end(self):
        self.process.terminate()
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        if code != 0:
            raise RuntimeError(f"expected exit code 0 of the server, got {code}")


class Replica:
    """`kakeya serve` with the demo model and one thread, on a port that it keeps when it starts anew."""

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


class HaProxy:
    """HAProxy by the text of a configuration, which listens on this port of 127.0.0.1."""

    def __init__(self, text, port, **environment):
        self.port = port
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name, "haproxy.cfg")
        path.write_text(text)
        self.process = subprocess.Popen(["haproxy", "-f", path], env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("haproxy does not get ready")

    def end(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


class Proxy(HaProxy):
    """HAProxy by deploy/haproxy.cfg, in front of the servers on these ports. Not bounded: a conversation stays however many
    requests its replica has. With a quota: so many requests a minute."""

    def __init__(self, ports, bounded=True, quota=None):
        port = free_port()
        text = (ROOT / "deploy/haproxy.cfg").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        if not bounded:
            text = text.replace("hash-balance-factor 150", "hash-balance-factor 0")
        if quota is not None:
            text = text.replace("#quota ", "").replace("gt 60", f"gt {quota}")
        for i, each in enumerate(ports):
            text = text.replace(f"127.0.0.1:808{i + 1}", f"127.0.0.1:{each}")
        super().__init__(text, port)


def make_keys(kakeya, folder, *names):
    """The keys that it makes for these names, and writes as the server wants them to FOLDER/keys."""
    made = [subprocess.run([kakeya, "serve", "--new-key", name], capture_output=True, text=True, check=True) for name in names]
    pathlib.Path(folder, "keys").write_text("".join(one.stdout for one in made))
    return [one.stderr.split()[-1] for one in made]


def make_certificate(folder, names, algorithm=("ec", "-pkeyopt", "ec_paramgen_curve:P-256")):
    """Writes a certificate that signs itself for these names (DNS:localhost,IP:127.0.0.1) and its key to FOLDER/tls.crt and FOLDER/tls.key."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", *algorithm, "-nodes", "-days", "2", "-subj", "/CN=kakeya",
                    "-addext", f"subjectAltName={names}", "-keyout", "tls.key", "-out", "tls.crt"], cwd=folder, check=True, capture_output=True)
