"""Agents: models of providers, and some that need none."""

from ors.providers.base import ModelOptions, Prices
from ors.rollouts.agents.human import HumanAgent
from ors.rollouts.agents.model import ModelAgent, play_model
from ors.rollouts.agents.plain import GoldAgent, NoopAgent, RandomAgent, ReplayAgent
from ors.rollouts.agents.resolve import resolve

__all__ = [
    "GoldAgent",
    "HumanAgent",
    "ModelAgent",
    "ModelOptions",
    "NoopAgent",
    "Prices",
    "RandomAgent",
    "ReplayAgent",
    "play_model",
    "resolve",
]
