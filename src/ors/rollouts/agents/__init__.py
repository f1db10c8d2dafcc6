"""Agents: models of providers, and some that need none."""

from ors.rollouts.agents.baselines import NoopAgent, RandomAgent
from ors.rollouts.agents.gold import GoldAgent
from ors.rollouts.agents.human import HumanAgent
from ors.rollouts.agents.model import ModelAgent
from ors.rollouts.agents.options import ModelOptions, Prices
from ors.rollouts.agents.replay import ReplayAgent
from ors.rollouts.agents.resolve import resolve
from ors.rollouts.agents.served import play_model

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
