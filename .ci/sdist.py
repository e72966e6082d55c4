"""The source archive: all that the tests, the docs and the examples need, whether the tree is a clone or an archive."""

from __future__ import annotations

from setuptools.command.sdist import sdist

FOLDERS = (".ci", ".github", "docs", "examples", "tests")
FILES = (".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md", "mkdocs.yml")
NO_SOURCE = ("*.py[cod]", "*.db-wal", "*.db-shm", "*_cache/*", "*/.hypothesis/*")


class SourceArchive(sdist):
    """Adds what no setting of pyproject.toml adds, only a file of its own or a clone."""

    def make_distribution(self) -> None:
        for folder in FOLDERS:
            self.filelist.graft(folder)
        self.filelist.extend(FILES)
        for pattern in NO_SOURCE:
            self.filelist.global_exclude(pattern)
        super().make_distribution()
