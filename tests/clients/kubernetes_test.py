"""deploy/kustomization.yaml and deploy/kubernetes: the files fit Kubernetes' schemas and each other, and HAProxy and three servers, settled as they say,
find each other by names and TLS. usage: kubernetes_test.py KAKEYA (needs kubernetes-validate, openai, openssl and haproxy)"""

import os
import pathlib
import re
import shutil
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import httpx
import kubernetes_validate
import openai
import yaml

from serving import ROOT, HaProxy, free_port, make_certificate, make_keys

KAKEYA = sys.argv.pop(1)
FOLDER = ROOT / "deploy"
FILES = [FOLDER / "kustomization.yaml", *sorted((FOLDER / "kubernetes").rglob("*.yaml"))]
DOCUMENTS = {(one["kind"], one.get("metadata", {}).get("name")): one for path in FILES for one in yaml.safe_load_all(path.read_text())}
# The oldest release that is still cared for, and the newest one that the package knows.
VERSIONS = ("1.33", kubernetes_validate.latest_version())
# Kinds that operators and kustomize bring: no schema of Kubernetes' own.
FOREIGN = ("Kustomization", "Component", "PodMonitor")
REPLICAS = DOCUMENTS["StatefulSet", "kakeya"]["spec"]
POD = REPLICAS["template"]["spec"]
# What the replicas' environment has, by name; of a field its path.
SETTINGS = {one["name"]: one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"] for one in POD["containers"][0]["env"]}


class Names(socketserver.UDPServer):
    """A name server on a port of its own: kakeya-0.kakeya-replicas.here.svc.cluster.local is the first of `addresses`."""

    def __init__(self, addresses):
        super().__init__(("127.0.0.1", 0), Question)
        self.addresses = addresses
        self.port = self.server_address[1]
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    def end(self):
        self.shutdown()
        self.thread.join()
        self.server_close()


class Question(socketserver.BaseRequestHandler):
    def handle(self):
        question, reply = self.request
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        at += 5  # the end of the name, type and class
        pod = re.fullmatch(r"kakeya-(\d+)\.kakeya-replicas\.here\.svc\.cluster\.local", ".".join(labels))
        address = self.server.addresses.get(int(pod[1])) if pod else None
        is_a = question[at - 4:at] == b"\0\1\0\1"
        answers = [] if address is None or not is_a else [b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(address)]
        flags = 0x8180 if address else 0x8183  # found, or no such name
        reply.sendto(question[:2] + struct.pack(">HHHHH", flags, 1, len(answers), 0, 0) + question[12:at] + b"".join(answers), self.client_address)


class Files(unittest.TestCase):
    def test_fit_the_schemas_of_kubernetes(self):
        for (kind, name), one in DOCUMENTS.items():
            for version in VERSIONS:
                if kind not in FOREIGN:
                    with self.subTest(kind=kind, name=name, version=version):
                        kubernetes_validate.validate(one, version, strict=True)

    def test_are_all_named_by_kustomize(self):
        named = set()
        for path in FILES:
            if path.name == "kustomization.yaml":
                one = yaml.safe_load(path.read_text())
                named |= {path, *(path.parent / file for file in one["resources"])}
                named |= {path.parent / file for made in one.get("configMapGenerator", []) for file in made["files"]}
        self.assertEqual(named, {*FILES, FOLDER / "haproxy.cfg"})

    def test_select_what_is_there(self):
        labels = [one["spec"]["template"]["metadata"]["labels"] for one in DOCUMENTS.values() if "template" in one.get("spec", {})]
        for key, one in DOCUMENTS.items():
            selector = one.get("spec", {}).get("selector", {})
            selector = selector.get("matchLabels", selector)
            if selector:
                self.assertEqual(sum(selector.items() <= some.items() for some in labels), 1, key)

    def test_set_what_the_server_has(self):
        page = subprocess.run([KAKEYA, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        flags = set(re.findall(r"--([a-z-]+)", page))
        for name in re.findall(r"KAKEYA_SERVE_([A-Z_]+)", (FOLDER / "kubernetes/replicas.yaml").read_text()):
            self.assertIn(name.lower().replace("_", "-"), flags)

    def test_give_room_and_time(self):
        limit, memory = (int(re.fullmatch(r"(\d+)Gi?B?", text)[1])
                         for text in (POD["containers"][0]["resources"]["limits"]["memory"], SETTINGS["KAKEYA_SERVE_MEMORY"]))
        self.assertGreaterEqual(limit - memory, limit / 8)
        end = float(SETTINGS["KAKEYA_SERVE_DRAIN_DELAY"]) + float(SETTINGS["KAKEYA_SERVE_DRAIN"])
        self.assertGreaterEqual(POD["terminationGracePeriodSeconds"], end + 10)

    def test_have_a_server_for_each_replica(self):
        servers = re.findall(r"^  server (kakeya-\S+)", (FOLDER / "haproxy.cfg").read_text(), re.M)
        most = DOCUMENTS["HorizontalPodAutoscaler", "kakeya"]["spec"]["maxReplicas"]
        self.assertEqual(servers, 2 * [f"kakeya-{i}" for i in range(most)])
        self.assertLessEqual(REPLICAS["replicas"], most)


@unittest.skipUnless(shutil.which("haproxy"), "haproxy is not installed")
class Cluster(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        make_certificate(self.folder, "DNS:kakeya,IP:127.0.0.1")
        shutil.copy(self.folder / "tls.crt", self.folder / "ca.crt")
        key, = make_keys(KAKEYA, self.folder, "ann")
        self.server_port, self.port = free_port(), free_port()
        self.names = Names({i: f"127.0.0.{i + 1}" for i in range(3)})
        self.addCleanup(self.names.end)
        self.servers = [self.serve(i, f"127.0.0.{i + 1}") for i in range(3)]
        self.route()
        self.client = openai.OpenAI(base_url=f"https://127.0.0.1:{self.port}/v1", api_key=key, max_retries=4,
                                    http_client=httpx.Client(verify=ssl.create_default_context(cafile=self.folder / "ca.crt")))
        self.addCleanup(self.client.close)
        for _ in range(200):
            try:
                if {self.made_by(self.respond(str(i))) for i in range(24)} == {f"kakeya-{i}" for i in range(3)}:
                    return
            except openai.APIError:
                time.sleep(0.1)
        self.fail("HAProxy does not find the replicas")

    def serve(self, i, address):
        """A replica as replicas.yaml sets it, but for its folders, its address, and one thread."""
        paths = {"KAKEYA_SERVE_KEYS": "keys", "KAKEYA_SERVE_TLS_CERT": "tls.crt", "KAKEYA_SERVE_TLS_KEY": "tls.key", "KAKEYA_SERVE_PROMPT_CACHE_DIR": "prefixes",
                 "KAKEYA_SERVE_SESSIONS_DIR": f"state-{i}", "HF_HOME": "huggingface"}
        environment = os.environ | SETTINGS | {name: str(self.folder / path) for name, path in paths.items() if name in SETTINGS} | {
            "KAKEYA_SERVE_HOST": address, "KAKEYA_SERVE_PORT": str(self.server_port), "KAKEYA_SERVE_REPLICA_NAME": f"kakeya-{i}",
            "KAKEYA_SERVE_MEMORY": "512MiB", "KAKEYA_SERVE_MODEL": str(ROOT / "models/demo"), "KAKEYA_SERVE_THREADS": "1"}
        server = subprocess.Popen([KAKEYA, "serve"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (server.kill(), server.wait()))
        return server

    def route(self):
        text = (FOLDER / "haproxy.cfg").read_text().replace("/etc/kakeya/tls", str(self.folder)).replace(":8443", f"127.0.0.1:{self.port}")
        text = text.replace(":8080", f":{self.server_port}").replace("parse-resolv-conf", f"nameserver cluster 127.0.0.1:{self.names.port}")
        router = HaProxy(text, self.port, KAKEYA_NAMESPACE="here")
        self.addCleanup(router.end)

    def respond(self, text, previous=None):
        return self.client.responses.create(model="demo", input=text, max_output_tokens=4, previous_response_id=previous)

    @staticmethod
    def made_by(response):
        return response.id.split("_")[1]

    def test_conversations_stay_over_a_restart_at_another_address(self):
        made = [self.respond(str(i)) for i in range(24)]
        for one in made:
            self.assertEqual(self.made_by(self.respond("And on.", one.id)), self.made_by(one))
        # A pod drains, ends, and comes back under its name at another address.
        self.servers[1].terminate()
        self.assertEqual(self.servers[1].wait(timeout=40), 0)
        self.names.addresses[1] = "127.0.0.9"
        self.servers[1] = self.serve(1, "127.0.0.9")
        while "kakeya-1" not in {self.made_by(self.respond(str(i))) for i in range(24)}:
            time.sleep(0.1)
        for one in made:
            self.assertEqual(self.client.responses.retrieve(one.id).output_text, one.output_text)
            self.assertEqual(self.made_by(self.respond("And on.", one.id)), self.made_by(one))

    def test_nobody_gets_in_without_a_key(self):
        stranger = self.client.with_options(api_key="kakeya-nobody")
        with self.assertRaises(openai.AuthenticationError):
            stranger.responses.create(model="demo", input="1", max_output_tokens=1)


if __name__ == "__main__":
    unittest.main()
