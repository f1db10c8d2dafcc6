"""Quality: whether an environment is fit to train on."""
