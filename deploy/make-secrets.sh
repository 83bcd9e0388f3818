#!/usr/bin/env bash
# Makes the secrets that compose.yaml mounts, once: random, in a directory that only its owner may enter.
# The files themselves are readable, because the containers read them under other users; the directory guards them.
set -euo pipefail
cd "$(dirname "$0")/secrets"
chmod 0700 .

fresh() { head -c 32 /dev/urandom | base64 | tr -dc 'A-Za-z0-9' | head -c 40; }

put() { # name, content: written only where it is not there yet
  [ -e "$1" ] || { printf '%s\n' "$2" >"$1" && chmod 0644 "$1" && echo "made deploy/secrets/$1"; }
}

put postgres_password "$(fresh)"
put database_url "postgresql://parley:$(cat postgres_password)@postgres:5432/parley"
put grafana_password "$(fresh)"
put channel_keys "$(printf 'first whsec_%s channel=web' "$(head -c 32 /dev/urandom | base64 | tr -d '\n')")"
