"""The `parley` command: each group is a file, and what a command needs is imported when it runs."""


def main() -> None:
    """Run the command line."""
    from workers.cli.program import program

    program()
