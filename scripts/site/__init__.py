"""The documentation site: its navigation, the parts that are made from the code, and llms.txt."""
