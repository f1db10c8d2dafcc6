"""`python -m ors`: the `ors` command."""

from ors.cli import main

if __name__ == "__main__":
    main()
