"""What a run says: statistics, comparisons and a picture."""
