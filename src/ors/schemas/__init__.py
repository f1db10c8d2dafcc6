"""JSON Schema, as far as the inputs of tools need it.

Public, for the command line, the conformance suite and the quality checks.
"""

from ors.schemas.checks import problems
from ors.schemas.samples import Inputs, emptiest, fits_patterns, needs_choice, sample
from ors.schemas.structure import TYPES, flattened

__all__ = ["TYPES", "Inputs", "emptiest", "fits_patterns", "flattened", "needs_choice", "problems", "sample"]
