"""The command line of kakeya.serve_ray: one line for what is wrong in it, before Ray is started."""

import argparse
import os
import socket
from typing import NoReturn

# Flags of `kakeya serve` that are set for it here, that other machines would reach it by, or that name a folder of
# one process alone.
OWN_FLAGS = ("--model", "--host", "--port", "--socket", "--grpc", "--tls-cert", "--tls-key", "--config", "--new-key",
             "--replica-name", "--sessions-dir", "--drain", "--drain-delay", "--help", "-m", "-h")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"serve_ray: {message}\n")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= 65535:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 65535, got {text!r}")
    return int(text)


def _share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 65535, got {text!r}")
    return number


def read(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Options of this command, and flags of `kakeya serve`; ends the process where they are wrong."""
    at = words.index("--") if "--" in words else len(words)
    flags = words[at + 1:]
    parser = _Parser(prog="python -m kakeya.serve_ray", allow_abbrev=False,
                     epilog="Behind -- stand flags of kakeya serve, for every replica: -- --memory 16GB")
    parser.add_argument("--model", help="a model's folder or a GGUF file (default: the demo model)")
    parser.add_argument("--replicas", type=_count, help="how many (default: 1)")
    parser.add_argument("--max-replicas", type=_count, help="instead: as many as the requests take, up to this")
    parser.add_argument("--min-replicas", type=_count, help="with --max-replicas: the fewest (default: 1)")
    parser.add_argument("--target-requests", type=_count, help="with --max-replicas: of one replica (default: 8)")
    parser.add_argument("--port", type=_count, default=8000, help="on 127.0.0.1 (default: 8000)")
    parser.add_argument("--cpus", type=_share, default=0, help="those that Ray reserves for a replica (default: 0)")
    parser.add_argument("--gpus", type=_share, default=0, help="a replica's cards; it sees no others (default: 0)")
    parser.add_argument("--drain", type=_count, default=30, help="seconds for a replica's last answers (default: 30)")
    given = parser.parse_args(words[:at])
    for flag in OWN_FLAGS:
        variable = "KAKEYA_SERVE_" + flag.strip("-").upper().replace("-", "_")
        if os.environ.get(variable) or any(word.split("=")[0] == flag for word in flags):
            parser.error(f"{flag} of kakeya serve: expected it neither behind -- nor as {variable}, got it")
    if os.environ.get("RAY_ADDRESS"):
        parser.error("RAY_ADDRESS: expected none, for the cluster is of this machine alone, got one")
    if os.environ.get("RAY_AUTH_MODE", "token") != "token":
        parser.error("RAY_AUTH_MODE: expected none or token, for Ray has ports that other machines reach, got another one")
    if given.max_replicas is None and (given.min_replicas or given.target_requests):
        parser.error("--min-replicas, --target-requests: expected --max-replicas beside them, got none")
    if given.max_replicas and (given.replicas or (given.min_replicas or 1) > given.max_replicas):
        parser.error(f"--max-replicas {given.max_replicas}: expected no --replicas and no larger --min-replicas beside it")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", given.port))
        except OSError as error:
            parser.error(f"--port {given.port}: expected one that is free, got {error.strerror}")
    model = ["--model", os.path.abspath(given.model)] if given.model else []
    return given, [*model, "--drain", str(given.drain), *flags]
