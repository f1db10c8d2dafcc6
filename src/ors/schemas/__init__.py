"""JSON Schema, as far as the inputs of tools need it.

Public, for the command line, rollouts, the conformance suite and the quality checks.
"""

from ors.schemas.samples import Inputs, emptiest, needs_choice, needs_example, sample
from ors.schemas.structure import TYPES, flattened, problems
from ors.schemas.typed import example, find_tool, is_open, signature, typed_call, typed_input, unquoted, usage

__all__ = [
    "TYPES",
    "Inputs",
    "emptiest",
    "example",
    "find_tool",
    "flattened",
    "is_open",
    "needs_choice",
    "needs_example",
    "problems",
    "sample",
    "signature",
    "typed_call",
    "typed_input",
    "unquoted",
    "usage",
]
