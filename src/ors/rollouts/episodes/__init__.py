"""One episode: its messages, rules, outcome and record, and how it is played."""
