"""The multiplexed connection between two servers."""
