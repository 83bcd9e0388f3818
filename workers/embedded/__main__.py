"""`python -m workers.embedded --data DIR`: Postgres and Kafka, ready when one JSON line appears."""

import argparse
import warnings
from pathlib import Path

from workers.embedded.services import serve


def main() -> None:
    """Parse the arguments and serve."""
    warnings.filterwarnings("ignore", "XDG_RUNTIME_DIR is not set")
    parser = argparse.ArgumentParser(prog="python -m workers.embedded", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="where Postgres keeps its data")
    parser.add_argument(
        "--die-with-parent", action="store_true", help="stop when the starting process ends (Linux)"
    )
    arguments = parser.parse_args()
    serve(arguments.data.absolute(), die_with_parent=arguments.die_with_parent)


if __name__ == "__main__":
    main()
