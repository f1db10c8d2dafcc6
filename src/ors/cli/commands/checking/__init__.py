"""Commands that examine environments, servers and this machine."""
