"""Links: multiplexed connections between servers."""
