"""Sessions, their calls and results, and who may have them. Nothing of HTTP."""
