"""deploy/Dockerfile and deploy/compose.yaml, as far as they can be tried without Docker: what they name is there."""
import pathlib
import re
import subprocess
import unittest

try:
    import yaml
except ImportError:
    yaml = None

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")


def flags():
    text = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("apps/**/*.cc"))
    text += "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("cli/**/*.cc"))
    return set(re.findall(r'"(?:-\w,)?--([a-z][a-z0-9-]*)', text))


class Container(unittest.TestCase):
    def test_paths_of_the_dockerfile_are_there(self):
        copied = re.findall(r"^COPY (\S+) \S+$", DOCKERFILE, re.MULTILINE)
        self.assertTrue(copied)
        for path in copied:
            self.assertTrue((ROOT / path).exists(), path)
        self.assertRegex((ROOT / "Makefile").read_text(encoding="utf-8"), r"(?m)^package:")
        package = (ROOT / "cmake/package.cmake").read_text(encoding="utf-8")
        config = re.search(r"KAKEYA_SERVE_CONFIG=(\S+)", DOCKERFILE).group(1)
        self.assertIn(f"install(FILES deploy/serve.toml DESTINATION {pathlib.Path(config).parent} ", package)

    def test_nothing_listens_beyond_the_container(self):
        self.assertIn('\nhost = "127.0.0.1"\nport = 8080\n', (ROOT / "deploy/serve.toml").read_text(encoding="utf-8"))
        self.assertRegex(DOCKERFILE, r"(?m)^USER 10001:10001$")
        self.assertNotRegex(DOCKERFILE, "SERVE_HOST|--host")

    def test_variables_are_flags(self):
        known = flags()
        text = DOCKERFILE + (ROOT / "deploy/compose.yaml").read_text(encoding="utf-8")
        for name in set(re.findall(r"KAKEYA_SERVE_([A-Z_]+)", text)):
            self.assertIn(name.lower().replace("_", "-"), known)

    def test_what_is_not_sent_to_docker_is_not_in_the_repository(self):
        for line in (ROOT / "deploy/Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines():
            listed = subprocess.run(["git", "ls-files", line], cwd=ROOT, capture_output=True, text=True)
            self.assertEqual(listed.stdout, "", line)

    @unittest.skipUnless(yaml, "there is no python3-yaml")
    def test_replicas_of_compose_are_those_of_haproxy(self):
        services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))["services"]
        haproxy = (ROOT / "deploy/haproxy.cfg").read_text(encoding="utf-8")
        there = dict(re.findall(r"^  server (\w+) 127\.0\.0\.1:(\d+)$", haproxy, re.MULTILINE))
        self.assertEqual({name: service["environment"]["KAKEYA_SERVE_PORT"] for name, service in services.items()
                          if name != "haproxy"}, there)
        for name in there:
            self.assertEqual(services[name]["environment"]["KAKEYA_SERVE_REPLICA_NAME"], name)
        for name, service in services.items():
            self.assertEqual(service["network_mode"], "host", name)
            self.assertNotIn("ports", service, name)
            for volume in service.get("volumes", []):
                self.assertTrue((ROOT / "deploy" / volume.split(":")[0]).exists(), volume)
            if name != "haproxy":
                build = service["build"]
                self.assertTrue((ROOT / "deploy" / build["context"] / build["dockerfile"]).exists())


if __name__ == "__main__":
    unittest.main()
