"""Training: a trainer in one file, and the environment that it trains on."""
