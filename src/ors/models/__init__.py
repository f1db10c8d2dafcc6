"""Models of providers, asked by HTTP."""

from ors.models.model import Model

__all__ = ["Model"]
