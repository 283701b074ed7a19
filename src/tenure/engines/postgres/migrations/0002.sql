-- Limits and turns. A library that does not know them would run jobs which they hold back, so none
-- older than this schema may use it.

-- Why a job that is due is not ready: the limit of its key that holds it back.
ALTER TABLE {jobs} ADD COLUMN blocked text COLLATE "C";

ALTER TABLE {finished} ADD COLUMN blocked text COLLATE "C";

-- The promote arm: what waits for its time, per queue.
DROP INDEX {at_jobs_waiting};

CREATE INDEX {jobs_waiting} ON {jobs} (queue, available_at, id)
    WHERE state = 'pending' AND NOT ready AND blocked IS NULL;

-- When the next job of a known task is due, however many of unknown ones wait before it.
DROP INDEX {at_jobs_waiting_lane};

CREATE INDEX {jobs_waiting_lane} ON {jobs} (queue, task, available_at)
    WHERE state = 'pending' AND NOT ready AND blocked IS NULL;

-- Who goes on when a slot of a key is freed.
CREATE INDEX {jobs_blocked_slot} ON {jobs} (queue, concurrency_key, task, rank, id)
    WHERE blocked = 'concurrency';

-- Who goes on when the rate of a key allows more.
CREATE INDEX {jobs_blocked_rate} ON {jobs} (queue, rate_key, task, rank, id)
    WHERE blocked = 'rate';

-- The slots that are taken.
CREATE INDEX {jobs_slots} ON {jobs} (queue, concurrency_key)
    WHERE state = 'running' AND concurrency_key IS NOT NULL;

-- The slots that are spoken for: by whom they will be taken next.
CREATE INDEX {jobs_next} ON {jobs} (queue, concurrency_key, task)
    WHERE state = 'pending' AND ready AND concurrency_key IS NOT NULL;

-- Who takes turns: the last of each key that is due and waits.
CREATE INDEX {jobs_turns} ON {jobs} (queue, fair_key, priority, rank)
    WHERE state = 'pending' AND fair_key IS NOT NULL AND (ready OR blocked IS NOT NULL);

-- The limits of a queue as JSON; NULL: it has none. Claims lock the rows of limited queues.
ALTER TABLE {queues} ADD COLUMN limits text;

-- What is kept of each rate, see tenure.core.limits.Cell; key '': the rate of the queue.
CREATE TABLE {rates} (
    queue text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    arrival bigint NOT NULL,
    wake_at bigint,
    CONSTRAINT {rates_pkey} PRIMARY KEY (queue, key)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Where blocked jobs are to be looked at next.
CREATE INDEX {rates_wake} ON {rates} (queue, wake_at, key)
    WHERE wake_at IS NOT NULL;

UPDATE {tenure_schema} SET version = 2, min_library = 2;
