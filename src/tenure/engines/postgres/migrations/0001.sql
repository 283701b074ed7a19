-- Jobs that live: pending or running. The columns stand in the order of tenure.core.job.JobRow; a
-- later migration adds at the end. Instants are microseconds since 1970-01-01 UTC; structured
-- values are JSON text. Texts that order or find anything compare by bytes, as Python does.
--
-- Every job is written three times in its life, so pages keep room for new versions of their rows,
-- and are vacuumed long before the fifth of a table that PostgreSQL waits for by itself.

CREATE TABLE {jobs} (
    id text COLLATE "C" NOT NULL CONSTRAINT {jobs_pkey} PRIMARY KEY,
    task text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    rank bigint NOT NULL,
    ready boolean NOT NULL,
    state text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    owner text COLLATE "C",
    lease_until bigint,
    claims integer NOT NULL,
    failures integer NOT NULL,
    max_attempts integer NOT NULL,
    lapses integer NOT NULL,
    max_lapses integer NOT NULL,
    releases integer NOT NULL,
    max_interruptions integer NOT NULL,
    available_at bigint NOT NULL,
    expires_at bigint,
    timeout double precision,
    retry text,
    cancel_requested boolean NOT NULL,
    payload bytea NOT NULL,
    codec text NOT NULL,
    payload_size integer NOT NULL,
    created_at bigint NOT NULL,
    queued_at bigint NOT NULL,
    started_at bigint,
    finished_at bigint,
    result bytea,
    error text,
    errors text,
    progress text,
    tags text,
    headers text,
    metadata text,
    description text,
    actor text,
    on_shutdown text,
    executor text,
    profile text,
    remote_ref text,
    dispatched_at bigint,
    payload_ref text,
    unique_key text COLLATE "C",
    unique_until text,
    concurrency_key text COLLATE "C",
    rate_key text COLLATE "C",
    fair_key text COLLATE "C",
    schedule text COLLATE "C",
    tick bigint,
    log_level integer,
    log_success boolean
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 500
);

-- The due arm: one lane per queue and task, in claim order.
CREATE INDEX {jobs_ready} ON {jobs} (queue, task, rank, id)
    WHERE state = 'pending' AND ready;

-- The promote arm: what waits for its time, per queue.
CREATE INDEX {jobs_waiting} ON {jobs} (queue, available_at, id)
    WHERE state = 'pending' AND NOT ready;

-- When the next job of a known task is due, however many of unknown ones wait before it.
CREATE INDEX {jobs_waiting_lane} ON {jobs} (queue, task, available_at)
    WHERE state = 'pending' AND NOT ready;

-- The expired arm.
CREATE INDEX {jobs_overdue} ON {jobs} (queue, expires_at, id)
    WHERE state = 'pending' AND expires_at IS NOT NULL;

-- The lapsed arm. lease_until is in no index, so that a renewal writes the row and nothing else.
CREATE INDEX {jobs_running} ON {jobs} (queue, task)
    WHERE state = 'running';

-- At most one living job of a key. Who comes second is told so before; this stands behind it.
CREATE UNIQUE INDEX {jobs_unique} ON {jobs} (unique_key)
    WHERE unique_key IS NOT NULL;

-- At most one job of a tick; and the living jobs of a schedule, for what their overlap asks.
CREATE UNIQUE INDEX {jobs_tick} ON {jobs} (schedule, tick)
    WHERE schedule IS NOT NULL;

-- Jobs that ended. What is kept of the past costs those that live nothing.
CREATE TABLE {finished} (LIKE {jobs}) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0.05
);

ALTER TABLE {finished} ADD CONSTRAINT {finished_pkey} PRIMARY KEY (id);

-- Retention: what ended, by how it did, the longest ago first. Each end may be kept for another
-- time, and what is still kept must not be walked through.
CREATE INDEX {finished_at} ON {finished} (state, finished_at, id);

-- At most one job of a tick, for ever.
CREATE UNIQUE INDEX {finished_tick} ON {finished} (schedule, tick)
    WHERE schedule IS NOT NULL;

-- Unique keys that are taken for ever, by which job and since when.
CREATE TABLE {reservations} (
    key text COLLATE "C" NOT NULL CONSTRAINT {reservations_pkey} PRIMARY KEY,
    job_id text COLLATE "C" NOT NULL,
    at bigint NOT NULL
);

-- How a queue is treated; a queue without a row has the defaults.
CREATE TABLE {queues} (
    queue text COLLATE "C" NOT NULL CONSTRAINT {queues_pkey} PRIMARY KEY,
    paused boolean NOT NULL
);

-- Workers that announced themselves, and until when their word holds.
CREATE TABLE {workers} (
    id text COLLATE "C" NOT NULL CONSTRAINT {workers_pkey} PRIMARY KEY,
    until bigint NOT NULL,
    info text NOT NULL
);

-- Recurring jobs. The columns stand in the order of tenure.core.schedule.Schedule.
CREATE TABLE {schedules} (
    name text COLLATE "C" NOT NULL CONSTRAINT {schedules_pkey} PRIMARY KEY,
    source text NOT NULL,
    task text NOT NULL,
    definition text NOT NULL,
    overlap text NOT NULL,
    next_at bigint,
    last_at bigint,
    paused boolean NOT NULL,
    revision bigint NOT NULL
);

-- The last revision of a schedule that was drawn, also of those removed since.
CREATE TABLE {revisions} (
    one integer NOT NULL CONSTRAINT {revisions_pkey} PRIMARY KEY CHECK (one = 1),
    last bigint NOT NULL
);

INSERT INTO {revisions} (one, last) VALUES (1, 0);

-- History. Events are read in the order of their transactions, and only of those that can no
-- longer be overtaken by an older one, so a reader that goes on from a cursor misses nothing.
CREATE TABLE {events} (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    number bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    at bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    job_id text COLLATE "C",
    task text COLLATE "C",
    queue text COLLATE "C",
    facts text NOT NULL,
    CONSTRAINT {events_pkey} PRIMARY KEY (xid, number)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The history of one job.
CREATE INDEX {events_of_job} ON {events} (job_id, xid, number)
    WHERE job_id IS NOT NULL;

-- What this schema is, and the lowest version a library must know to use it.
CREATE TABLE {tenure_schema} (
    one integer NOT NULL CONSTRAINT {tenure_schema_pkey} PRIMARY KEY CHECK (one = 1),
    version integer NOT NULL,
    min_library integer NOT NULL
);

INSERT INTO {tenure_schema} (one, version, min_library) VALUES (1, 1, 1);
