"""Options for the sandboxes of openreward's clients."""

from dataclasses import dataclass
from pathlib import Path

from ors.cli.options.serving import Bytes
from ors.cli.options.shared import ImageFlags, flag
from ors.openreward.hosting import Hosting


@dataclass(frozen=True)
class HostingFlags(ImageFlags):
    host_root: bool = flag("Use this machine's programs for all other images.", is_flag=True)
    open_network: bool = flag("Give sandboxes the network that they ask for.", is_flag=True)
    sandbox_memory: int | None = flag("Most memory of one sandbox; beyond it, 400.", type=Bytes())

    def hosting(self, data: Path | None) -> Hosting:
        self.tell()
        return Hosting(self.images, self.host_root, data, self.open_network, self.sandbox_memory)
