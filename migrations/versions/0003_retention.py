"""Retention of every table."""

from migrations.statements import run_script

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run_script("0003_retention.up")


def downgrade() -> None:
    run_script("0003_retention.down")
