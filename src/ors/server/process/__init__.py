"""The server as a process: start, signals, forks, shutdown."""
