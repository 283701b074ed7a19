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

-- Retention: what ended, by how it did, the longest ago first. Each end may be kept for another
-- time, and what is still kept must not be walked through.
CREATE INDEX jobs_finished ON jobs (state, finished_at, id)
    WHERE finished_at IS NOT NULL;

-- At most one living job of a key. Who comes second is told so before; this stands behind it.
CREATE UNIQUE INDEX jobs_unique ON jobs (unique_key)
    WHERE unique_key IS NOT NULL AND state IN ('pending', 'running');

-- At most one job of a tick, for ever.
CREATE UNIQUE INDEX jobs_tick ON jobs (schedule, tick)
    WHERE schedule IS NOT NULL AND tick IS NOT NULL;

-- Living jobs of a schedule, for what their overlap asks.
CREATE INDEX jobs_scheduled ON jobs (schedule)
    WHERE schedule IS NOT NULL AND state IN ('pending', 'running');

-- Unique keys that are taken for ever, by which job and since when.
CREATE TABLE reservations (
    key TEXT NOT NULL PRIMARY KEY,
    job_id TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How a queue is treated; a queue without a row has the defaults.
CREATE TABLE queues (
    queue TEXT NOT NULL PRIMARY KEY,
    paused INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Workers that announced themselves, and until when their word holds.
CREATE TABLE workers (
    id TEXT NOT NULL PRIMARY KEY,
    until INTEGER NOT NULL,
    info TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Recurring jobs. The columns stand in the order of tenure.core.schedule.Schedule.
CREATE TABLE schedules (
    name TEXT NOT NULL PRIMARY KEY,
    source TEXT NOT NULL,
    task TEXT NOT NULL,
    definition TEXT NOT NULL,
    overlap TEXT NOT NULL,
    next_at INTEGER,
    last_at INTEGER,
    paused INTEGER NOT NULL,
    revision INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The last revision of a schedule that was drawn, also of those removed since.
CREATE TABLE revisions (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    last INTEGER NOT NULL
) STRICT;

INSERT INTO revisions (one, last) VALUES (1, 0);

-- History. Numbers are never used twice, so a cursor stays valid when old events are removed.
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    name TEXT NOT NULL,
    job_id TEXT,
    task TEXT,
    queue TEXT,
    facts TEXT NOT NULL
) STRICT;

-- The history of one job.
CREATE INDEX events_of_job ON events (job_id, number)
    WHERE job_id IS NOT NULL;

-- What this file is, and the lowest schema version a library must know to use it.
CREATE TABLE tenure_schema (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    min_library INTEGER NOT NULL
) STRICT;

INSERT INTO tenure_schema (one, version, min_library) VALUES (1, 1, 1);
