"""tools/release, up to where it would build."""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILES = {"CMakeLists.txt": "project(kakeya VERSION 1.2.3 LANGUAGES CXX)\n", "python/pyproject.toml": '[project]\nversion = "1.2.3"\n',
         "CHANGELOG.md": "# Changelog\n\n## 1.2.3 (2026-01-31)\n\n## 1.2.2 (2026-01-30)\n"}


class Release(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools/release", self.root / "tools/release")
        for name, text in FILES.items():
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text(text)
        (self.root / "Makefile").write_text("package:\n\t@echo built; false\n")
        self.git("init", "--quiet")
        self.commit()

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments], cwd=self.root, check=True)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "all")

    def release(self, *arguments):
        done = subprocess.run([self.root / "tools/release", *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def refused(self, *arguments):
        code, out, said = self.release(*arguments)
        self.assertEqual((code, out, said.count("\n")), (1, "", 1), said)
        return said

    def test_versions_of_the_repository_agree(self):
        subprocess.run([ROOT / "tools/release", "--check"], check=True)

    def test_each_file_that_names_another_version_is_named(self):
        self.assertEqual(self.release("--check"), (0, "", ""))
        for name in FILES:
            (self.root / name).write_text(FILES[name].replace("1.2.3", "1.2.4"))
            self.assertIn("1.2.4", self.refused("--check"))
            (self.root / name).write_text("")
            self.assertIn(name, self.refused("--check"))
            (self.root / name).write_text(FILES[name])

    def test_only_a_dated_clean_and_free_version_is_built(self):
        self.assertIn("built", self.release()[1])
        (self.root / "new").write_text("")
        self.assertIn("expected a clean tree, got changes: ?? new", self.refused())
        self.commit()
        self.git("tag", "v1.2.3")
        self.assertIn("free tag", self.refused())
        (self.root / "CHANGELOG.md").write_text("## 1.2.3 (unreleased)\n")
        self.assertIn("(unreleased)", self.refused())
        self.assertIn("expected --check or nothing", self.refused("--chekc"))


if __name__ == "__main__":
    unittest.main()
