"""Consumer groups with members (Kafka's classic protocol), and the leases of their sessions."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SCRIPT = """
CREATE TABLE groups (
    group_id TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    protocol_type TEXT NOT NULL,
    protocol_name TEXT,
    generation_id INT NOT NULL,
    leader TEXT,
    members TEXT NOT NULL,
    deadline INT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX groups_deadline ON groups (deadline) WHERE deadline >= 0;
CREATE INDEX groups_with_members ON groups (group_id) WHERE state <> 'Empty';

CREATE TABLE group_sessions (
    group_id TEXT NOT NULL,
    member_id TEXT NOT NULL,
    expires INT NOT NULL,
    PRIMARY KEY (group_id, member_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_sessions_expires ON group_sessions (expires);
"""


def upgrade() -> None:
    for statement in SCRIPT.split(";"):
        if statement.strip():
            op.execute(statement)
