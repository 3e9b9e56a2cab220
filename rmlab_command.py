"""The command `rmlab`, in which an interrupt is quiet from the first import on."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from rmlab.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("rmlab: interrupted\n")
        sys.exit(130)
