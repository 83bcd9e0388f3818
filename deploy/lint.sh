#!/usr/bin/env bash
# Lints the image file and the compose file, in an environment of its own: the linter needs another click than the project.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-$(command -v python3.11 || command -v python3)}

if ! [ -x .venv/bin/hadolint ] || ! [ -x .venv/bin/check-jsonschema ]; then
  "$python" -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lint-requirements.lock
fi
.venv/bin/hadolint Dockerfile
.venv/bin/check-jsonschema --builtin-schema vendor.compose-spec ../compose.yaml
for script in make-secrets.sh lint.sh; do bash -n "$script"; done
