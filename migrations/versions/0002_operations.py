"""Pauses, and which agents a worker knows."""

from migrations.statements import run_script

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    run_script("0002_operations.up")


def downgrade() -> None:
    run_script("0002_operations.down")
