"""What is in deploy/ is what Kubernetes understands, and what our commands offer."""

import re
from pathlib import Path

import click
import pytest

from ors.cli import ors

MANIFESTS = sorted((Path(__file__).parents[1] / "deploy" / "kubernetes").glob("*.yaml"))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_fit_the_schemas_of_kubernetes(path: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    yaml = pytest.importorskip("yaml")
    for resource in yaml.safe_load_all(path.read_text()):
        validate.validate(resource, "1.30", strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_use_options_that_exist(path: Path) -> None:
    for line in re.findall(r"exec ors (\w+ .*)", path.read_text()):
        name = line.split()[0]
        command = ors.get_command(click.Context(ors), name)
        assert command is not None
        known = {option for param in command.params for option in param.opts}
        assert set(re.findall(r" (--[a-z-]+)", line)) <= known
