"""Reads trajectories with Harbor's own reader and validator; prints what it found. Needs `harbor`."""

import json
import sys
from pathlib import Path

from harbor.models.trajectories import Trajectory  # type: ignore[import-not-found]
from harbor.utils.trajectory_validator import TrajectoryValidator  # type: ignore[import-not-found]

found = []
for path in sorted(Path(sys.argv[1]).glob("*.json")):
    validator = TrajectoryValidator()
    valid = validator.validate(path)
    read = Trajectory.model_validate_json(path.read_text()) if valid else None
    found.append(
        {
            "errors": validator.get_errors(),
            "same": read is not None
            and read.to_json_dict(exclude_none=False)["extra"] == json.loads(path.read_text())["extra"],
            "version": read and read.schema_version,
            "sources": [step.source for step in read.steps] if read else [],
            "calls": [call.function_name for step in read.steps for call in step.tool_calls or []]
            if read
            else [],
            "images": bool(read and read.has_multimodal_content()),
            "reward": read and (read.extra or {}).get("reward"),
        }
    )
print(json.dumps(found))
