"""Reads a JSON lines file with `datasets`; prints its rows. Needs `datasets`."""

import json
import sys

from datasets import load_dataset

rows = load_dataset("json", data_files=sys.argv[1], split="train", cache_dir=sys.argv[2])
print(json.dumps([dict(row) for row in rows]))
