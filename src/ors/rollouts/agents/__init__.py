"""Agents: models of providers, and some that need none."""

from ors.providers.base import ModelOptions, Prices
from ors.rollouts.agents.builtin import GoldAgent, ModelAgent, NoopAgent, RandomAgent, ReplayAgent, play_model
from ors.rollouts.agents.human import HumanAgent
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
