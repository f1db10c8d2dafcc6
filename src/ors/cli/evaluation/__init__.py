"""What `ors eval` does: plan, tasks, the run itself, its live table and its report."""
