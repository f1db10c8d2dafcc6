"""Options for the sandboxes of openreward's clients."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ors.cli.errors import WrongUsage
from ors.cli.options.serving import Bytes
from ors.cli.options.shared import flag
from ors.openreward.hosting import Hosting


@dataclass(frozen=True)
class HostingFlags:
    image: Sequence[str] = flag(
        "Where an image is: a folder with its files, or an archive as `podman save` writes it. Repeatable.",
        multiple=True,
        metavar="NAME=PATH",
    )
    host_root: bool = flag("Use this machine's programs for all other images.", is_flag=True)
    open_network: bool = flag("Give sandboxes the network that they ask for.", is_flag=True)
    sandbox_memory: int | None = flag("Most memory of one sandbox; beyond it, 400.", type=Bytes())

    def hosting(self, data: Path | None) -> Hosting:
        images = {}
        for name, equals, path in (each.partition("=") for each in self.image):
            if not equals or not Path(path).exists():
                raise WrongUsage(f"--image {name}{equals}{path}: expected NAME=PATH, with a path that exists")
            images[name] = str(Path(path).resolve())
        return Hosting(images, self.host_root, data, self.open_network, self.sandbox_memory)
