"""The engine and conversation memory: every table that the main job needs."""

from migrations.statements import run_script

revision = "0001"
down_revision = None


def upgrade() -> None:
    run_script("0001_engine.up")


def downgrade() -> None:
    run_script("0001_engine.down")
