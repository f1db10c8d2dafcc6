"""Parts of `ors eval`: plan, tasks, the run itself, its live table and its report."""
