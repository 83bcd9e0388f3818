"""Where the open runs of a lane begin."""

from migrations.statements import run_script

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    run_script("0004_head_position.up")


def downgrade() -> None:
    run_script("0004_head_position.down")
