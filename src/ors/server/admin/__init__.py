"""The pages below /-/: health, metrics, the list of sessions, the inspector."""
