"""nginx with its default settings in front of `kakeya serve`: events of a stream come one by one, and
names of hosts pass. usage: nginx_test.py KAKEYA (tools/test_clients --all runs it)"""

import http.client
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from serving import Server, free_port

KAKEYA = sys.argv.pop(1)

CONFIGURATION = """
daemon off;
pid {folder}/pid;
error_log {folder}/errors;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass {address}; {more} }}
  }}
}}
"""


class BehindNginx(unittest.TestCase):
    def serve(self, folder, *flags, more=""):
        server = Server(KAKEYA, *flags)
        self.addCleanup(server.end)
        port = free_port()
        file = pathlib.Path(folder, "nginx.conf")
        file.write_text(CONFIGURATION.format(folder=folder, port=port, address=server.url, more=more))
        proxy = subprocess.Popen(["nginx", "-p", folder, "-c", file], stderr=subprocess.DEVNULL)
        self.addCleanup(proxy.wait, 60)
        self.addCleanup(proxy.terminate)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return port
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("nginx does not listen: " + pathlib.Path(folder, "errors").read_text())

    def ask(self, port, host="127.0.0.1", **body):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions",
                           json.dumps({"prompt": "5, 6, 7", "temperature": 0, **body}),
                           {"Content-Type": "application/json", "Host": host})
        return connection.getresponse()

    def test_streams_event_by_event(self):
        with tempfile.TemporaryDirectory() as folder:
            port = self.serve(folder)
            answer = self.ask(port, stream=True, max_tokens=1500, ignore_eos=True)
            arrivals = []
            while line := answer.readline():
                if line.startswith(b"data: "):
                    arrivals.append(time.monotonic())
            whole = arrivals[-1] - arrivals[0]
            self.assertGreater(len(arrivals), 100)
            # In lumps of 8 KiB there would be few moments at which something comes.
            moments = sum(1 for a, b in zip(arrivals, arrivals[1:]) if b - a > whole / 5000)
            self.assertGreater(moments, 40)

    def test_names_that_are_allowed_pass(self):
        with tempfile.TemporaryDirectory() as folder:
            port = self.serve(folder, "--allow-host", "llm.example", more="proxy_set_header Host $host;")
            self.assertEqual(self.ask(port, host="llm.example", max_tokens=1).status, 200)
            self.assertEqual(self.ask(port, host="other.example", max_tokens=1).status, 403)


if __name__ == "__main__":
    unittest.main()
