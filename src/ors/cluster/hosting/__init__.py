"""Hosts: servers that an engine such as Ray starts, and how many of them there are."""
