-- Jobs. The columns stand in the order of tenure.core.job.JobRow; a later migration adds at the end.
-- Instants are microseconds since 1970-01-01 UTC; structured values are JSON text.

CREATE TABLE jobs (
    id TEXT NOT NULL PRIMARY KEY,
    task TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    ready INTEGER NOT NULL,
    state TEXT NOT NULL,
    token INTEGER NOT NULL,
    owner TEXT,
    lease_until INTEGER,
    claims INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    lapses INTEGER NOT NULL,
    max_lapses INTEGER NOT NULL,
    releases INTEGER NOT NULL,
    max_interruptions INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    expires_at INTEGER,
    timeout REAL,
    retry TEXT,
    cancel_requested INTEGER NOT NULL,
    payload BLOB NOT NULL,
    codec TEXT NOT NULL,
    payload_size INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    queued_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    result BLOB,
    error TEXT,
    errors TEXT,
    progress TEXT,
    tags TEXT,
    headers TEXT,
    metadata TEXT,
    description TEXT,
    actor TEXT,
    on_shutdown TEXT,
    executor TEXT,
    profile TEXT,
    remote_ref TEXT,
    dispatched_at INTEGER,
    payload_ref TEXT,
    unique_key TEXT,
    unique_until TEXT,
    concurrency_key TEXT,
    rate_key TEXT,
    fair_key TEXT,
    schedule TEXT,
    tick INTEGER,
    log_level INTEGER,
    log_success INTEGER
) STRICT;

-- The due arm: one lane per queue and task, in claim order. expires_at is there so that overdue
-- jobs are passed over without reading their rows.
CREATE INDEX jobs_ready ON jobs (queue, task, rank, id, expires_at)
    WHERE state = 'pending' AND ready = 1;

-- The promote arm: what waits for its time, per queue.
CREATE INDEX jobs_waiting ON jobs (queue, available_at, id)
    WHERE state = 'pending' AND ready = 0;

-- When the next job of a known task is due, however many of unknown ones wait before it.
CREATE INDEX jobs_waiting_lane ON jobs (queue, task, available_at)
    WHERE state = 'pending' AND ready = 0;

-- The expired arm.
CREATE INDEX jobs_overdue ON jobs (queue, expires_at, id)
    WHERE state = 'pending' AND expires_at IS NOT NULL;

-- The lapsed arm. lease_until is in no index, so that renewals write the row and nothing else.
CREATE INDEX jobs_running ON jobs (queue, task)
    WHERE state = 'running';

-- Who was asked to stop: read when another process wrote.
CREATE INDEX jobs_cancelling ON jobs (id)
    WHERE state = 'running' AND cancel_requested = 1;

-- What this file is, and the lowest schema version a library must know to use it.
CREATE TABLE tenure_schema (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    min_library INTEGER NOT NULL
) STRICT;

INSERT INTO tenure_schema (one, version, min_library) VALUES (1, 1, 1);
