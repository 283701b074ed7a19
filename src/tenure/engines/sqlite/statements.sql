-- Every statement that the engine runs. Rows are read with `*`: the columns of `jobs` stand in the
-- order of JobRow, and what a later schema adds stands behind them.

-- name: any_between
-- Whether any id of this range is taken.
SELECT 1 FROM jobs WHERE id BETWEEN :first AND :last LIMIT 1;

-- name: known_ids
-- Which of these ids are taken.
SELECT id FROM jobs WHERE id IN (SELECT value FROM json_each(:ids));

-- name: insert_job
-- One new row, all columns in their order; nothing if the id is taken.
INSERT INTO jobs (
    id, task, queue, priority, rank, ready, state, token, owner, lease_until, claims, failures,
    max_attempts, lapses, max_lapses, releases, max_interruptions, available_at, expires_at,
    timeout, retry, cancel_requested, payload, codec, payload_size, created_at, queued_at,
    started_at, finished_at, result, error, errors, progress, tags, headers, metadata,
    description, actor, on_shutdown, executor, profile, remote_ref, dispatched_at, payload_ref,
    unique_key, unique_until, concurrency_key, rate_key, fair_key, schedule, tick, log_level,
    log_success, blocked
) VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
) ON CONFLICT (id) DO NOTHING;

-- name: insert_plain_job
-- The same for a row that has values in these columns only: half of the cost is in the others.
INSERT INTO jobs (
    id, task, queue, priority, rank, ready, state, token, claims, failures, max_attempts,
    lapses, max_lapses, releases, max_interruptions, available_at, expires_at, timeout, retry,
    cancel_requested, payload, codec, payload_size, created_at, queued_at, tags, headers,
    metadata, description
) VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
) ON CONFLICT (id) DO NOTHING;

-- name: waiting_in_queue
-- Jobs of a queue whose time has come, the first ones first.
SELECT available_at, id FROM jobs INDEXED BY jobs_waiting
WHERE state = 'pending' AND ready = 0 AND blocked IS NULL AND queue = :queue
    AND available_at <= :now
ORDER BY available_at, id LIMIT :limit;

-- name: promote
-- These jobs may be claimed; rank and queued_at were computed from available_at beforehand.
UPDATE jobs SET ready = 1 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: turn_takers
-- Those of these jobs that take turns.
SELECT * FROM jobs WHERE id IN (SELECT value FROM json_each(:ids)) AND fair_key IS NOT NULL
ORDER BY available_at, id;

-- name: last_turn
-- The highest rank of a key of a queue, at a priority, among jobs that are due and wait.
SELECT max(rank) FROM jobs INDEXED BY jobs_turns
WHERE state = 'pending' AND fair_key IS NOT NULL AND (ready = 1 OR blocked IS NOT NULL)
    AND queue = :queue AND fair_key = :key AND priority = :priority;

-- name: take_turn
-- The place of a job that has become due.
UPDATE jobs SET rank = :rank WHERE id = :id;

-- name: overdue_in_queue
-- Pending jobs of a queue whose expires_at passed, the first ones first.
SELECT expires_at, id FROM jobs INDEXED BY jobs_overdue
WHERE state = 'pending' AND queue = :queue AND expires_at IS NOT NULL AND expires_at <= :now
ORDER BY expires_at, id LIMIT :limit;

-- name: overdue_queues
-- Every queue that holds a pending job which can expire: a skip scan, one step per queue.
WITH RECURSIVE lane (queue) AS (
    SELECT min(queue) FROM jobs INDEXED BY jobs_overdue
    WHERE state = 'pending' AND expires_at IS NOT NULL
    UNION ALL
    SELECT (
        SELECT min(queue) FROM jobs INDEXED BY jobs_overdue
        WHERE state = 'pending' AND expires_at IS NOT NULL AND queue > lane.queue
    ) FROM lane WHERE lane.queue IS NOT NULL
)
SELECT queue FROM lane WHERE queue IS NOT NULL;

-- name: turns_given_up
-- How many of these jobs were ready to take a slot, by key.
SELECT queue, concurrency_key, count(*) FROM jobs
WHERE id IN (SELECT value FROM json_each(:ids)) AND +ready = 1 AND concurrency_key IS NOT NULL
GROUP BY queue, concurrency_key;

-- name: expire
-- These jobs were not started in time.
UPDATE jobs SET state = 'expired', ready = 0, blocked = NULL, finished_at = :now
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: lapsed_in_lanes
-- Running jobs of these queues and tasks whose lease ran out, the longest ago first.
SELECT jobs.lease_until, jobs.id, jobs.queue
FROM json_each(:queues) AS q CROSS JOIN json_each(:tasks) AS t
CROSS JOIN jobs INDEXED BY jobs_running
WHERE jobs.state = 'running' AND jobs.queue = q.value AND jobs.task = t.value
    AND jobs.lease_until <= :now
ORDER BY jobs.lease_until, jobs.id LIMIT :limit;

-- name: lapsed_in_queues
-- The same for every task name.
SELECT jobs.lease_until, jobs.id, jobs.queue
FROM json_each(:queues) AS q CROSS JOIN jobs INDEXED BY jobs_running
WHERE jobs.state = 'running' AND jobs.queue = q.value AND jobs.lease_until <= :now
ORDER BY jobs.lease_until, jobs.id LIMIT :limit;

-- name: lapsed_by_id
-- The same among these ids only; tasks NULL means every name.
SELECT lease_until, id, queue FROM jobs
WHERE id IN (SELECT value FROM json_each(:ids))
    AND +state = 'running' AND lease_until <= :now
    AND +queue IN (SELECT value FROM json_each(:queues))
    AND (:tasks IS NULL OR +task IN (SELECT value FROM json_each(:tasks)))
ORDER BY lease_until, id LIMIT :limit;

-- name: lapsed_anywhere
-- Running jobs whose lease ran out, in every queue, the longest ago first.
SELECT * FROM jobs INDEXED BY jobs_running
WHERE state = 'running' AND lease_until <= :now
ORDER BY lease_until, id LIMIT :limit;

-- name: lapsed_others
-- Running jobs of these queues whose lease ran out, but for those of these tasks and ids (NULL: of
-- all), the longest ago first.
SELECT jobs.* FROM json_each(:queues) AS q CROSS JOIN jobs INDEXED BY jobs_running
WHERE jobs.state = 'running' AND jobs.queue = q.value AND jobs.lease_until <= :now
    AND NOT (
        (:tasks IS NULL OR jobs.task IN (SELECT value FROM json_each(:tasks)))
        AND (:ids IS NULL OR jobs.id IN (SELECT value FROM json_each(:ids)))
    )
ORDER BY jobs.lease_until, jobs.id LIMIT :limit;

-- name: ready_lanes
-- Those of these queues and tasks that hold a ready job.
SELECT q.value, t.value FROM json_each(:queues) AS q CROSS JOIN json_each(:tasks) AS t
WHERE EXISTS (
    SELECT 1 FROM jobs INDEXED BY jobs_ready
    WHERE state = 'pending' AND ready = 1 AND queue = q.value AND task = t.value
);

-- name: ready_tasks
-- Every task name with a ready job in a queue: a skip scan, one step per name.
WITH RECURSIVE lane (task) AS (
    SELECT min(task) FROM jobs INDEXED BY jobs_ready
    WHERE state = 'pending' AND ready = 1 AND queue = :queue
    UNION ALL
    SELECT (
        SELECT min(task) FROM jobs INDEXED BY jobs_ready
        WHERE state = 'pending' AND ready = 1 AND queue = :queue AND task > lane.task
    ) FROM lane WHERE lane.task IS NOT NULL
)
SELECT task FROM lane WHERE task IS NOT NULL;

-- name: ready_in_lane
-- Jobs of one lane in claim order. Looks at no more than :reach of them, should many be overdue.
SELECT rank, id, :queue FROM (
    SELECT rank, id, expires_at FROM jobs INDEXED BY jobs_ready
    WHERE state = 'pending' AND ready = 1 AND queue = :queue AND task = :task
    ORDER BY rank, id LIMIT :reach
) WHERE expires_at IS NULL OR expires_at > :now
LIMIT :limit;

-- name: ready_by_id
-- The same among these ids only; tasks NULL means every name.
SELECT rank, id, queue FROM jobs
WHERE id IN (SELECT value FROM json_each(:ids))
    AND +state = 'pending' AND +ready = 1 AND (expires_at IS NULL OR +expires_at > :now)
    AND +queue IN (SELECT value FROM json_each(:queues))
    AND (:tasks IS NULL OR +task IN (SELECT value FROM json_each(:tasks)))
ORDER BY rank, id LIMIT :limit;

-- name: limited_in_lane
-- As `ready_in_lane`, with the keys that limits ask for.
SELECT rank, id, :queue, concurrency_key, rate_key FROM (
    SELECT rank, id, concurrency_key, rate_key, expires_at FROM jobs INDEXED BY jobs_ready
    WHERE queue = :queue AND task = :task AND state = 'pending' AND ready = 1
    ORDER BY rank, id
    LIMIT :reach
) AS lane WHERE coalesce(expires_at > :now, 1) LIMIT :limit;

-- name: limited_by_id
-- As `ready_by_id`, with the keys that limits ask for.
SELECT rank, id, queue, concurrency_key, rate_key FROM jobs
WHERE +state = 'pending' AND +ready = 1 AND coalesce(expires_at > :now, 1)
    AND id IN (SELECT value FROM json_each(:ids))
    AND +queue IN (SELECT value FROM json_each(:queues))
    AND (+task IN (SELECT value FROM json_each(:tasks)) OR :tasks IS NULL)
ORDER BY rank, id;

-- name: running_in_queue
-- How many jobs of a queue run.
SELECT count(*) FROM jobs INDEXED BY jobs_running WHERE state = 'running' AND queue = :queue;

-- name: slots_taken
-- How many jobs of these keys (pairs of queue and key) run.
SELECT jobs.queue, jobs.concurrency_key, count(*)
FROM json_each(:keys) AS k CROSS JOIN jobs INDEXED BY jobs_slots
WHERE jobs.state = 'running' AND jobs.concurrency_key IS NOT NULL
    AND jobs.queue = k.value ->> 0 AND jobs.concurrency_key = k.value ->> 1
GROUP BY jobs.queue, jobs.concurrency_key;

-- name: block
-- A limit holds these ready jobs back.
UPDATE jobs SET ready = 0, blocked = :blocked WHERE id IN (SELECT value FROM json_each(:ids));

-- name: unblock
-- These blocked jobs are to be looked at again.
UPDATE jobs SET ready = 1, blocked = NULL WHERE id IN (SELECT value FROM json_each(:ids));

-- name: unblock_queue
-- All blocked jobs of a queue are.
UPDATE jobs SET ready = 1, blocked = NULL WHERE id IN (
    SELECT id FROM jobs INDEXED BY jobs_blocked_slot WHERE blocked = 'concurrency' AND queue = :queue
    UNION ALL
    SELECT id FROM jobs INDEXED BY jobs_blocked_rate WHERE blocked = 'rate' AND queue = :queue
);

-- name: tasks_without_slot
-- Every task with a job that waits for a slot of one of these keys: a skip scan, one step per task.
WITH RECURSIVE lane (queue, key, task) AS (
    SELECT k.value ->> 0, k.value ->> 1, (
        SELECT min(task) FROM jobs INDEXED BY jobs_blocked_slot
        WHERE blocked = 'concurrency' AND queue = k.value ->> 0 AND concurrency_key = k.value ->> 1
    ) FROM json_each(:keys) AS k
    UNION ALL
    SELECT lane.queue, lane.key, (
        SELECT min(task) FROM jobs INDEXED BY jobs_blocked_slot
        WHERE blocked = 'concurrency' AND queue = lane.queue AND concurrency_key = lane.key
            AND task > lane.task
    ) FROM lane WHERE lane.task IS NOT NULL
)
SELECT queue, key, task FROM lane WHERE task IS NOT NULL;

-- name: tasks_beyond_rate
-- The same for jobs that wait until the rate of their key allows more.
WITH RECURSIVE lane (queue, key, task) AS (
    SELECT k.value ->> 0, k.value ->> 1, (
        SELECT min(task) FROM jobs INDEXED BY jobs_blocked_rate
        WHERE blocked = 'rate' AND queue = k.value ->> 0 AND rate_key = k.value ->> 1
    ) FROM json_each(:keys) AS k
    UNION ALL
    SELECT lane.queue, lane.key, (
        SELECT min(task) FROM jobs INDEXED BY jobs_blocked_rate
        WHERE blocked = 'rate' AND queue = lane.queue AND rate_key = lane.key
            AND task > lane.task
    ) FROM lane WHERE lane.task IS NOT NULL
)
SELECT queue, key, task FROM lane WHERE task IS NOT NULL;

-- name: first_without_slot
-- The first of a task that wait for a slot of a key.
SELECT id FROM jobs INDEXED BY jobs_blocked_slot
WHERE blocked = 'concurrency' AND queue = :queue AND concurrency_key = :key AND task = :task
ORDER BY rank, id LIMIT :limit;

-- name: first_beyond_rate
-- The first of a task that wait until the rate of their key allows more.
SELECT id FROM jobs INDEXED BY jobs_blocked_rate
WHERE blocked = 'rate' AND queue = :queue AND rate_key = :key AND task = :task
ORDER BY rank, id LIMIT :limit;

-- name: rates
-- What is kept of these rates (pairs of queue and key).
SELECT rates.queue, rates.key, rates.arrival, rates.wake_at
FROM json_each(:keys) AS k CROSS JOIN rates
WHERE rates.queue = k.value ->> 0 AND rates.key = k.value ->> 1;

-- name: keep_rate
-- Keep one rate, all columns in their order.
INSERT OR REPLACE INTO rates (queue, key, arrival, wake_at) VALUES (?, ?, ?, ?);

-- name: rates_to_wake
-- The rates of a queue whose blocked jobs are to be looked at, see tenure.core.limits.wakes.
SELECT key, arrival, wake_at FROM rates INDEXED BY rates_wake
WHERE queue = :queue AND wake_at IS NOT NULL AND (wake_at <= :now OR wake_at > :now + :longest)
ORDER BY wake_at, key LIMIT :limit;

-- name: first_wake
-- When that is to be next.
SELECT min(wake_at) FROM rates INDEXED BY rates_wake
WHERE queue = :queue AND wake_at IS NOT NULL;

-- name: wake_nobody
-- No blocked job of a queue is to be looked at any more.
UPDATE rates SET wake_at = NULL WHERE queue = :queue AND wake_at IS NOT NULL;

-- name: forget_rates
-- Remove what says no more than a rate that is not kept, see tenure.core.limits.is_over.
DELETE FROM rates WHERE wake_at IS NULL AND arrival <= :now;

-- name: claim_due
-- Take these pending jobs, as tenure.core.rules.claimed_values says.
UPDATE jobs SET
    state = 'running', ready = 0, token = max(token + 1, :now), owner = :owner,
    lease_until = :until, claims = claims + 1, started_at = :now,
    unique_key = CASE WHEN unique_until = 'started' THEN NULL ELSE unique_key END,
    unique_until = CASE WHEN unique_until = 'started' THEN NULL ELSE unique_until END
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING *;

-- name: claim_lapsed
-- Take these running jobs over.
UPDATE jobs SET
    token = max(token + 1, :now), owner = :owner,
    lease_until = :until, claims = claims + 1, lapses = lapses + 1, started_at = :now
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING *;

-- name: held_by
-- Running jobs of an owner but for these, the first lease to end first.
SELECT id FROM jobs INDEXED BY jobs_running
WHERE state = 'running' AND owner = :owner
    AND id NOT IN (SELECT value FROM json_each(:held))
ORDER BY lease_until, id LIMIT :limit;

-- name: resume
-- Repeat a claim to its owner: the token stays, the lease starts anew.
UPDATE jobs SET lease_until = :until
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING *;

-- name: fences
-- What decides about writes that show a token.
SELECT id, token, owner, state, lease_until, cancel_requested, priority, queue, concurrency_key
FROM jobs
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: extend
-- Prolong these leases; `fences` has told that they are held.
UPDATE jobs SET lease_until = :until, progress = coalesce(:progress, progress)
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'running';

-- name: hold
-- Lock the row of a running job for its holder, by writing to it what it has.
UPDATE jobs SET token = token
WHERE id = :id AND token = :token AND owner = :owner AND +state = 'running';

-- name: settle_final
-- End these attempts, and with them the jobs; `fences` has told that their holders still hold them.
UPDATE jobs SET
    state = :state, failures = :failures, lapses = :lapses, releases = :releases,
    result = :result, error = :error, errors = :errors, lease_until = :lease_until,
    ready = :ready, finished_at = :finished_at
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'running';

-- name: settle_pending
-- End these attempts; the jobs wait for their next ones.
UPDATE jobs SET
    state = :state, failures = :failures, lapses = :lapses, releases = :releases,
    result = :result, error = :error, errors = :errors, lease_until = :lease_until,
    ready = :ready, available_at = :available_at, queued_at = :queued_at, rank = :rank,
    finished_at = :finished_at
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = 'running';

-- name: settle_result
-- What a body returned, after the end of its attempt was written.
UPDATE jobs SET result = :result WHERE id = :id;

-- name: row
-- One job.
SELECT * FROM jobs WHERE id = :id;

-- name: rows
-- These jobs.
SELECT * FROM jobs WHERE id IN (SELECT value FROM json_each(:ids));

-- name: write_row
-- All columns of one job, for the rare steps that are computed from its whole row.
UPDATE jobs SET
    task = :task, queue = :queue, priority = :priority, rank = :rank, ready = :ready, state =
    :state, token = :token, owner = :owner, lease_until = :lease_until, claims = :claims,
    failures = :failures, max_attempts = :max_attempts, lapses = :lapses, max_lapses =
    :max_lapses, releases = :releases, max_interruptions = :max_interruptions, available_at =
    :available_at, expires_at = :expires_at, timeout = :timeout, retry = :retry,
    cancel_requested = :cancel_requested, payload = :payload, codec = :codec, payload_size =
    :payload_size, created_at = :created_at, queued_at = :queued_at, started_at = :started_at,
    finished_at = :finished_at, result = :result, error = :error, errors = :errors, progress =
    :progress, tags = :tags, headers = :headers, metadata = :metadata, description =
    :description, actor = :actor, on_shutdown = :on_shutdown, executor = :executor, profile =
    :profile, remote_ref = :remote_ref, dispatched_at = :dispatched_at, payload_ref =
    :payload_ref, unique_key = :unique_key, unique_until = :unique_until, concurrency_key =
    :concurrency_key, rate_key = :rate_key, fair_key = :fair_key, schedule = :schedule, tick =
    :tick, log_level = :log_level, log_success = :log_success, blocked = :blocked
WHERE id = :id;

-- name: request_cancel
-- Ask the holder of a running job to stop.
UPDATE jobs SET cancel_requested = 1 WHERE id = :id AND +state = 'running';

-- name: cancelling
-- Who was asked to stop and still runs.
SELECT id FROM jobs INDEXED BY jobs_cancelling WHERE state = 'running' AND cancel_requested = 1;

-- name: next_due_in_lanes
-- Microseconds until the first job of these queues and tasks is due.
SELECT min(CASE
    WHEN EXISTS (
        SELECT 1 FROM jobs INDEXED BY jobs_ready
        WHERE state = 'pending' AND ready = 1 AND queue = q.value AND task = t.value
    ) THEN 0
    ELSE (
        SELECT max(0, min(available_at) - :now) FROM jobs INDEXED BY jobs_waiting_lane
        WHERE state = 'pending' AND ready = 0 AND blocked IS NULL AND queue = q.value AND task = t.value
    )
END)
FROM json_each(:queues) AS q CROSS JOIN json_each(:tasks) AS t;

-- name: next_due_in_queues
-- The same for every task name.
SELECT min(CASE
    WHEN EXISTS (
        SELECT 1 FROM jobs INDEXED BY jobs_ready
        WHERE state = 'pending' AND ready = 1 AND queue = q.value
    ) THEN 0
    ELSE (
        SELECT max(0, min(available_at) - :now) FROM jobs INDEXED BY jobs_waiting
        WHERE state = 'pending' AND ready = 0 AND blocked IS NULL AND queue = q.value
    )
END)
FROM json_each(:queues) AS q;

-- name: scan_end
-- The last of so many jobs before an id; nothing, if there are not that many.
SELECT id FROM jobs WHERE id < :before ORDER BY id DESC LIMIT 1 OFFSET :scan;

-- name: find_in_range
-- Matching jobs before an id and not before another, newest first; what is NULL matches all.
SELECT * FROM jobs
WHERE id < :before AND id >= :floor
    AND (:states IS NULL OR +state IN (SELECT value FROM json_each(:states)))
    AND (:tasks IS NULL OR +task IN (SELECT value FROM json_each(:tasks)))
    AND (:queues IS NULL OR +queue IN (SELECT value FROM json_each(:queues)))
    AND (:keys IS NULL OR +unique_key IN (SELECT value FROM json_each(:keys)))
    AND (:schedules IS NULL OR +schedule IN (SELECT value FROM json_each(:schedules)))
    AND (:actors IS NULL OR actor IN (SELECT value FROM json_each(:actors)))
    AND (:created_from IS NULL OR created_at >= :created_from)
    AND (:created_to IS NULL OR created_at < :created_to)
    AND (:finished_from IS NULL OR +finished_at >= :finished_from)
    AND (:finished_to IS NULL OR +finished_at < :finished_to)
ORDER BY id DESC LIMIT :limit;

-- name: find_among_ids
-- The same among these ids only.
SELECT * FROM jobs
WHERE id IN (SELECT value FROM json_each(:ids)) AND id < :before
    AND (:states IS NULL OR +state IN (SELECT value FROM json_each(:states)))
    AND (:tasks IS NULL OR +task IN (SELECT value FROM json_each(:tasks)))
    AND (:queues IS NULL OR +queue IN (SELECT value FROM json_each(:queues)))
    AND (:keys IS NULL OR +unique_key IN (SELECT value FROM json_each(:keys)))
    AND (:schedules IS NULL OR +schedule IN (SELECT value FROM json_each(:schedules)))
    AND (:actors IS NULL OR actor IN (SELECT value FROM json_each(:actors)))
    AND (:created_from IS NULL OR created_at >= :created_from)
    AND (:created_to IS NULL OR created_at < :created_to)
    AND (:finished_from IS NULL OR +finished_at >= :finished_from)
    AND (:finished_to IS NULL OR +finished_at < :finished_to)
ORDER BY id DESC LIMIT :limit;

-- name: inside_in_range
-- What tells of matching jobs whether they match inside, too.
SELECT id, tags, metadata, error FROM jobs
WHERE id < :before AND id >= :floor
    AND (:states IS NULL OR +state IN (SELECT value FROM json_each(:states)))
    AND (:tasks IS NULL OR +task IN (SELECT value FROM json_each(:tasks)))
    AND (:queues IS NULL OR +queue IN (SELECT value FROM json_each(:queues)))
    AND (:keys IS NULL OR +unique_key IN (SELECT value FROM json_each(:keys)))
    AND (:schedules IS NULL OR +schedule IN (SELECT value FROM json_each(:schedules)))
    AND (:actors IS NULL OR actor IN (SELECT value FROM json_each(:actors)))
    AND (:created_from IS NULL OR created_at >= :created_from)
    AND (:created_to IS NULL OR created_at < :created_to)
    AND (:finished_from IS NULL OR +finished_at >= :finished_from)
    AND (:finished_to IS NULL OR +finished_at < :finished_to)
ORDER BY id DESC;

-- name: inside_among_ids
-- The same among these ids only.
SELECT id, tags, metadata, error FROM jobs
WHERE id IN (SELECT value FROM json_each(:ids)) AND id < :before
    AND (:states IS NULL OR +state IN (SELECT value FROM json_each(:states)))
    AND (:tasks IS NULL OR +task IN (SELECT value FROM json_each(:tasks)))
    AND (:queues IS NULL OR +queue IN (SELECT value FROM json_each(:queues)))
    AND (:keys IS NULL OR +unique_key IN (SELECT value FROM json_each(:keys)))
    AND (:schedules IS NULL OR +schedule IN (SELECT value FROM json_each(:schedules)))
    AND (:actors IS NULL OR actor IN (SELECT value FROM json_each(:actors)))
    AND (:created_from IS NULL OR created_at >= :created_from)
    AND (:created_to IS NULL OR created_at < :created_to)
    AND (:finished_from IS NULL OR +finished_at >= :finished_from)
    AND (:finished_to IS NULL OR +finished_at < :finished_to)
ORDER BY id DESC;

-- name: stats
-- The depth of every queue, or of these. Reads the whole table: never on a hot path.
SELECT queue,
    sum(state = 'pending' AND available_at <= :now),
    sum(state = 'pending' AND blocked IS NOT NULL),
    sum(state = 'pending' AND available_at > :now),
    sum(state = 'running'),
    sum(state = 'running' AND lease_until <= :now),
    sum(state = 'completed'), sum(state = 'failed'),
    sum(state = 'cancelled'), sum(state = 'expired'),
    :now - min(CASE WHEN state = 'pending' AND available_at <= :now THEN available_at END)
FROM jobs
WHERE :queues IS NULL OR queue IN (SELECT value FROM json_each(:queues))
GROUP BY queue ORDER BY queue;

-- name: twins
-- The living jobs with these unique keys.
SELECT * FROM jobs INDEXED BY jobs_unique
WHERE unique_key IN (SELECT value FROM json_each(:keys)) AND unique_key IS NOT NULL
    AND state IN ('pending', 'running');

-- name: reservations
-- Who reserved these keys.
SELECT key, job_id, at FROM reservations WHERE key IN (SELECT value FROM json_each(:keys));

-- name: reserve
-- Take a key for ever.
INSERT INTO reservations (key, job_id, at) VALUES (:key, :job_id, :at);

-- name: release_reservation
-- Free a key, if this job holds it; owner NULL: whoever does.
DELETE FROM reservations WHERE key = :key AND (:owner IS NULL OR job_id = :owner);

-- name: job_of_tick
-- The job of a tick, in any state.
SELECT id FROM jobs INDEXED BY jobs_tick
WHERE schedule = :schedule AND tick = :tick AND tick IS NOT NULL;

-- name: living_of_schedule
-- Pending and running jobs of a schedule, the oldest first.
SELECT * FROM jobs INDEXED BY jobs_scheduled
WHERE schedule = :schedule AND state IN ('pending', 'running') ORDER BY id;

-- name: schedule
-- One schedule.
SELECT * FROM schedules WHERE name = :name;

-- name: all_schedules
-- All of them, by name.
SELECT * FROM schedules ORDER BY name;

-- name: write_schedule
-- Keep a schedule, all columns in their order.
INSERT OR REPLACE INTO schedules (
    name, source, task, definition, overlap, next_at, last_at, paused, revision
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: remove_schedule
-- Forget a schedule; its jobs stay.
DELETE FROM schedules WHERE name = :name;

-- name: draw_revision
-- A revision that no schedule of this file ever had.
UPDATE revisions SET last = last + 1 RETURNING last;

-- name: configure_queue
-- How a queue is treated from now on.
INSERT OR REPLACE INTO queues (queue, paused, limits) VALUES (:queue, :paused, :limits);

-- name: queue_settings
-- All settings that were ever given, by queue.
SELECT queue, paused, limits FROM queues ORDER BY queue;

-- name: special_queues
-- The queues that are paused or limited, and how.
SELECT queue, paused, limits FROM queues WHERE paused = 1 OR limits IS NOT NULL;

-- name: forget_workers
-- Remove workers whose word no longer holds, and this one.
DELETE FROM workers WHERE until <= :now OR id = :id;

-- name: announce
-- Keep what a worker says of itself, until then.
INSERT INTO workers (id, until, info) VALUES (:id, :until, :info);

-- name: workers
-- What workers said whose word still holds, by id.
SELECT info FROM workers WHERE until > :now ORDER BY id;

-- name: conditions
-- What tells whether a job is in a possible condition, for every job; and its task.
SELECT id, task, state, ready, available_at, owner, lease_until, finished_at FROM jobs;

-- name: append_event
-- Keep one event.
INSERT INTO events (at, name, job_id, task, queue, facts) VALUES (?, ?, ?, ?, ?, ?);

-- name: read_events
-- Matching events after a number, in the order in which they were kept; a NULL list matches all.
SELECT number, at, name, job_id, task, queue, facts FROM events
WHERE number > :after
    AND (:names IS NULL OR name IN (SELECT value FROM json_each(:names)))
    AND (:tasks IS NULL OR task IN (SELECT value FROM json_each(:tasks)))
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
ORDER BY number LIMIT :limit;

-- name: read_events_of_jobs
-- The same for these jobs only.
SELECT number, at, name, job_id, task, queue, facts FROM events INDEXED BY events_of_job
WHERE job_id IN (SELECT value FROM json_each(:job_ids)) AND job_id IS NOT NULL
    AND number > :after
    AND (:names IS NULL OR name IN (SELECT value FROM json_each(:names)))
    AND (:tasks IS NULL OR task IN (SELECT value FROM json_each(:tasks)))
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
ORDER BY number LIMIT :limit;

-- name: prune_events
-- Remove those of the first events that were kept before an instant. However many there are, only
-- the first are looked at: their order is that of their times, but for steps of the clock.
DELETE FROM events WHERE number IN (
    SELECT number FROM (SELECT number, at FROM events ORDER BY number LIMIT :limit)
    WHERE at < :before
);

-- name: ended_before
-- Jobs of a final state that ended before an instant, the longest ago first; a NULL list matches
-- all.
SELECT finished_at, id, state FROM jobs INDEXED BY jobs_finished
WHERE state = :state AND finished_at < :before AND finished_at IS NOT NULL
    AND (:tasks IS NULL OR task IN (SELECT value FROM json_each(:tasks)))
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
ORDER BY finished_at, id LIMIT :limit;

-- name: ended_of_ids
-- The same among these ids only, of all final states or of these.
SELECT finished_at, id, state FROM jobs
WHERE id IN (SELECT value FROM json_each(:ids)) AND +finished_at < :before
    AND +state IN ('completed', 'failed', 'cancelled', 'expired')
    AND (:states IS NULL OR +state IN (SELECT value FROM json_each(:states)))
    AND (:tasks IS NULL OR +task IN (SELECT value FROM json_each(:tasks)))
    AND (:queues IS NULL OR +queue IN (SELECT value FROM json_each(:queues)))
ORDER BY finished_at, id LIMIT :limit;

-- name: remove_jobs
-- Remove these jobs.
DELETE FROM jobs WHERE id IN (SELECT value FROM json_each(:ids));
