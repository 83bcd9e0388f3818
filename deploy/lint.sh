#!/usr/bin/env bash
# Lints the image file and the compose file, in an environment of its own: the linter needs another click than the project.
# `deploy/lint.sh environment` only makes that environment (deploy/.venv), where it is not there yet or older than its lock.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-$(command -v python3.11 || command -v python3)}

if ! [ .venv/.installed -nt lint-requirements.lock ]; then
  mkdir -p .venv
  exec 9>.venv/.lock
  flock 9
  if ! [ .venv/.installed -nt lint-requirements.lock ]; then
    [ -x .venv/bin/python ] || "$python" -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lint-requirements.lock
    touch .venv/.installed
  fi
  exec 9>&-
fi
[ "${1:-}" != environment ] || exit 0
.venv/bin/hadolint Dockerfile
.venv/bin/check-jsonschema --quiet --builtin-schema vendor.compose-spec ../compose.yaml
for script in make-secrets.sh lint.sh; do bash -n "$script"; done
