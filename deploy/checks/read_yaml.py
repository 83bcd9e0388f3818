"""Reads YAML files into one JSON list of documents; those of Kubernetes' own kinds with what its schemas say.

Runs in `deploy/.venv`, which has the reader and the schemas: `python read_yaml.py VERSIONS FILE...`, with versions
like `1.28,1.37` or nothing. Each item of the list has `file`, `document`, `problems` (of all versions) and
`validated` (how many versions were asked).
"""

import json
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped,import-not-found,unused-ignore]  # of deploy/.venv
import yaml  # type: ignore[import-untyped,import-not-found,unused-ignore]  # of deploy/.venv

_NOT_OF_KUBERNETES = ("kustomize.config.k8s.io/", "keda.sh/")


def read(path: Path, versions: list[str]) -> list[dict[str, Any]]:
    """The documents of one file."""
    read = []
    for document in yaml.safe_load_all(path.read_text("utf-8")):
        problems: list[str] = []
        foreign = str(document.get("apiVersion", "")).startswith(_NOT_OF_KUBERNETES)
        asked = [] if foreign else versions
        for version in asked:
            problems += _problems(document, version)
        read.append({"file": path.name, "document": document, "problems": problems, "validated": len(asked)})
    return read


def _problems(document: dict[str, Any], version: str) -> list[str]:
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        where = ".".join(str(part) for part in error.path)
        return [f"{version}: {where}: {error.message}"]
    except kubernetes_validate.SchemaNotFoundError as error:
        return [f"{version}: {error.message}"]
    return []


def main() -> None:
    """Print the list for the arguments."""
    versions, *files = sys.argv[1:]
    wanted = [version for version in versions.split(",") if version]
    documents = [document for file in files for document in read(Path(file), wanted)]
    json.dump(documents, sys.stdout)


if __name__ == "__main__":
    main()
