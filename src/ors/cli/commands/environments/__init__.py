"""Commands that create environments, look at them and play them by hand."""
