"""One server of the comparison, as a process: `python -m bench.serve (ors | floor) PORT`.

Which package serves the environment is decided by whose Python runs this.
"""

import sys


def main() -> None:
    """Serves until it is told to stop."""
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == "floor":
        from bench import floor

        floor.run(port)
        return
    from bench.environment import Bench
    from ors import Server

    Server([Bench]).run(host="127.0.0.1", port=port)


if __name__ == "__main__":
    main()
