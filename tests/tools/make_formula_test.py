"""tools/make_formula, as far as it can be tried without Homebrew."""
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def make(*arguments):
    return subprocess.run([sys.executable, ROOT / "tools/make_formula", *map(str, arguments)], capture_output=True,
                          text=True)


class MakeFormula(unittest.TestCase):
    def test_it_depends_on_what_the_brewfile_has(self):
        formula = make().stdout
        for line in (ROOT / "Brewfile").read_text().splitlines():
            if line.startswith("brew "):
                self.assertIn(f"depends_on {line.removeprefix('brew ')}", formula)
        self.assertIn(f'head "{ROOT.as_uri()}", using: :git', formula)
        self.assertNotIn("sha256", formula)

    def test_a_release_has_its_checksum(self):
        with tempfile.NamedTemporaryFile() as tarball:
            tarball.write(b"some bytes")
            tarball.flush()
            formula = make("https://example.org/kakeya#{1}.tar.gz", tarball.name).stdout
        self.assertIn(f'sha256 "{hashlib.sha256(b"some bytes").hexdigest()}"', formula)
        self.assertIn(r'url "https://example.org/kakeya\#{1}.tar.gz"', formula)

    def test_a_tarball_that_is_not_there_is_one_line(self):
        done = make("https://example.org/kakeya.tar.gz", "/nowhere/kakeya.tar.gz")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "/nowhere/kakeya.tar.gz: No such file or directory\n")


if __name__ == "__main__":
    unittest.main()
