"""verl's trainer with a small model, on a CPU: `python -m examples.training.verl_small`."""
