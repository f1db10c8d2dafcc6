"""Analysis of runs: statistics, comparisons and a picture."""
