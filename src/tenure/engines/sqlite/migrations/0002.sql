-- Limits and turns. A library that does not know them would run jobs which they hold back, so none
-- older than this schema may use the file.

-- Why a job that is due is not ready: the limit of its key that holds it back.
ALTER TABLE jobs ADD COLUMN blocked TEXT;

-- The promote arm: what waits for its time, per queue.
DROP INDEX jobs_waiting;
CREATE INDEX jobs_waiting ON jobs (queue, available_at, id)
    WHERE state = 'pending' AND ready = 0 AND blocked IS NULL;

-- When the next job of a known task is due, however many of unknown ones wait before it.
DROP INDEX jobs_waiting_lane;
CREATE INDEX jobs_waiting_lane ON jobs (queue, task, available_at)
    WHERE state = 'pending' AND ready = 0 AND blocked IS NULL;

-- Who goes on when a slot of a key is freed.
CREATE INDEX jobs_blocked_slot ON jobs (queue, concurrency_key, task, rank, id)
    WHERE blocked = 'concurrency';

-- Who goes on when the rate of a key allows more.
CREATE INDEX jobs_blocked_rate ON jobs (queue, rate_key, task, rank, id)
    WHERE blocked = 'rate';

-- The slots that are taken.
CREATE INDEX jobs_slots ON jobs (queue, concurrency_key)
    WHERE state = 'running' AND concurrency_key IS NOT NULL;

-- Who takes turns: the last of each key that is due and waits.
CREATE INDEX jobs_turns ON jobs (queue, fair_key, priority, rank)
    WHERE state = 'pending' AND fair_key IS NOT NULL AND (ready = 1 OR blocked IS NOT NULL);

-- The limits of a queue as JSON; NULL: it has none.
ALTER TABLE queues ADD COLUMN limits TEXT;

-- What is kept of each rate, see tenure.core.limits.Cell; key '': the rate of the queue.
CREATE TABLE rates (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    arrival INTEGER NOT NULL,
    wake_at INTEGER,
    PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;

-- Where blocked jobs are to be looked at next.
CREATE INDEX rates_wake ON rates (queue, wake_at, key)
    WHERE wake_at IS NOT NULL;

UPDATE tenure_schema SET version = 2, min_library = 2;
