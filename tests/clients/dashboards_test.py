"""What deploy/ asks Prometheus for, against GET /metrics of `kakeya serve`. usage: dashboards_test.py KAKEYA"""

import json
import re
import shutil
import subprocess
import sys
import unittest
import urllib.request

from serving import ROOT, Server

KAKEYA = sys.argv.pop(1)
NAME = re.compile(r"\b(?:kakeya_|vllm:)[a-z_:]+")


def asked(texts):
    return {name for text in texts for name in NAME.findall(text)}


class Dashboards(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = Server(KAKEYA)
        cls.addClassCleanup(server.end)
        url = server.url
        urllib.request.urlopen(url + "/health").close()  # the first response, which is counted
        text = urllib.request.urlopen(url + "/metrics").read().decode()
        cls.known = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
        # Families by label that have no sample yet.
        cls.known |= {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}

    def test_panels_ask_for_what_there_is(self):
        board = json.loads((ROOT / "deploy/grafana.json").read_text())
        for panel in board["panels"]:
            names = asked(target["expr"] for target in panel["targets"])
            self.assertTrue(names, panel["title"])
            self.assertEqual(names - self.known, set(), panel["title"])
        for variable in board["templating"]["list"]:
            self.assertEqual(asked([variable["query"]]) - self.known, set())

    def test_alerts_ask_for_what_there_is(self):
        rules = ROOT / "deploy/alerts.yml"
        names = asked(line for line in rules.read_text().splitlines() if not line.startswith("#"))
        self.assertGreater(len(names), 5)
        self.assertEqual(names - self.known, set())
        if shutil.which("promtool"):
            subprocess.run(["promtool", "check", "rules", rules], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    unittest.main()
