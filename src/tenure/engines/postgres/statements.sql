-- Every statement that the engine runs. Names in braces are those of tables, with their schema and
-- prefix; `now` in braces is the store's clock, or the instant that a call was given. Columns are
-- listed, never `*`: a later schema has more of them. Rows come as tenure.core.job.JobRow has them.
--
-- A condition on the state that stands beside ids is written as `state || ''`, so that only the
-- primary key can serve it: after statistics of a moment in which nothing ran, PostgreSQL would
-- rather read the whole index of running jobs, and be wrong by orders of magnitude. What was found
-- and locked is then written by its place (ctid); a row that has moved since is left for next time.

-- name: clock
-- The store's time.
SELECT {now};

-- name: known_ids
-- Which of these ids are taken.
SELECT id FROM {jobs} WHERE id = ANY(%(ids)s::text[])
UNION ALL SELECT id FROM {finished} WHERE id = ANY(%(ids)s::text[]);

-- name: insert_plain
-- New rows without unique key, tick and turn, as tenure.core.job.new_row says; the ids of those that are new.
-- That an id is in neither table is asked of one snapshot, so a job that ends meanwhile is seen. If
-- another inserts the same id at this moment, the statement fails and is run again, which costs all
-- others less than ON CONFLICT.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
asked AS (
    SELECT a.*, clock.now,
        CASE WHEN a.run_at IS NULL THEN clock.now + a.delay ELSE greatest(a.run_at, clock.now) END
            AS due
    FROM clock, unnest(
        %(id)s::text[], %(task)s::text[], %(queue)s::text[], %(priority)s::integer[],
        %(payload)s::bytea[], %(codec)s::text[], %(delay)s::bigint[], %(run_at)s::bigint[],
        %(expires_in)s::bigint[], %(expires_at)s::bigint[], %(max_attempts)s::integer[],
        %(max_lapses)s::integer[], %(max_interruptions)s::integer[],
        %(timeout)s::double precision[], %(retry)s::text[], %(tags)s::text[], %(headers)s::text[],
        %(metadata)s::text[], %(description)s::text[], %(actor)s::text[],
        %(concurrency_key)s::text[], %(rate_key)s::text[], %(on_shutdown)s::text[],
        %(log_level)s::integer[], %(log_success)s::boolean[]
    ) AS a (
        id, task, queue, priority, payload, codec, delay, run_at, expires_in, expires_at,
        max_attempts, max_lapses, max_interruptions, timeout, retry, tags, headers, metadata,
        description, actor, concurrency_key, rate_key, on_shutdown, log_level, log_success
    )
)
INSERT INTO {jobs} (
    id, task, queue, priority, rank, ready, state, token, claims, failures, max_attempts, lapses,
    max_lapses, releases, max_interruptions, available_at, expires_at, timeout, retry,
    cancel_requested, payload, codec, payload_size, created_at, queued_at, tags, headers,
    metadata, description, actor, concurrency_key, rate_key, on_shutdown, log_level, log_success
)
SELECT
    id, task, queue, priority, due - priority::bigint * 3600000000, due <= now, 'pending', 0, 0, 0,
    max_attempts, 0, max_lapses, 0, max_interruptions, due,
    CASE WHEN expires_in IS NULL THEN expires_at ELSE now + expires_in END, timeout, retry,
    false, payload, codec, length(payload), now, due, tags, headers, metadata, description, actor,
    concurrency_key, rate_key, on_shutdown, log_level, log_success
FROM asked
WHERE (SELECT true FROM {jobs} j WHERE j.id = asked.id) IS NULL
    AND (SELECT true FROM {finished} f WHERE f.id = asked.id) IS NULL
RETURNING id;

-- name: insert_row
-- One new row, all columns.
INSERT INTO {jobs} ({columns}) VALUES ({values});

-- name: insert_finished
-- One new row that has ended already.
INSERT INTO {finished} ({columns}) VALUES ({values});

-- name: claim_due
-- Take up to `most` jobs of these lanes in claim order, if no other arm has work to do first, and
-- none of the queues is limited. Looks
-- at `reach` candidates, of each lane from its floor on; says how many there were, so that a claim
-- among many others looks further, and how many microseconds it looked for.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
work AS MATERIALIZED (
    SELECT
        %(promote)s AND EXISTS (
            SELECT FROM unnest(%(queues)s::text[]) AS q (queue), clock WHERE clock.now >= (
                SELECT min(j.available_at) FROM {jobs} j
                WHERE j.state = 'pending' AND NOT j.ready AND j.blocked IS NULL
                    AND j.queue = q.queue
            )
        ) OR %(expire)s AND EXISTS (
            SELECT FROM unnest(%(queues)s::text[]) AS q (queue), clock WHERE clock.now >= (
                SELECT min(j.expires_at) FROM {jobs} j
                WHERE j.state = 'pending' AND j.expires_at IS NOT NULL AND j.queue = q.queue
            )
        ) OR %(lapsed)s AND EXISTS (
            SELECT FROM unnest(%(queues)s::text[]) AS q (queue) CROSS JOIN LATERAL (
                SELECT FROM {jobs} j
                WHERE j.state = 'running' AND j.queue = q.queue
                    AND j.lease_until <= (SELECT now FROM clock)
                ORDER BY j.task LIMIT 1
            ) l
        ) OR EXISTS (
            SELECT FROM {queues} p
            WHERE p.queue = ANY(%(queues)s::text[]) AND p.limits IS NOT NULL
        ) AS found
),
lanes AS MATERIALIZED (
    SELECT l.queue, l.task, l.floor FROM work CROSS JOIN unnest(
        %(lane_queues)s::text[], %(lane_tasks)s::text[], %(floors)s::bigint[]
    ) AS l (queue, task, floor)
    WHERE NOT work.found
        AND NOT EXISTS (SELECT FROM {queues} p WHERE p.queue = l.queue AND p.paused)
),
seen AS MATERIALIZED (
    SELECT c.place, c.id, c.rank, l.queue, l.task FROM lanes l CROSS JOIN LATERAL (
        SELECT j.ctid AS place, j.id, j.rank FROM {jobs} j
        WHERE j.state = 'pending' AND j.ready AND j.queue = l.queue AND j.task = l.task
            AND j.rank >= l.floor
            AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM clock))
        ORDER BY j.rank, j.id LIMIT %(reach)s::bigint
    ) c
    ORDER BY c.rank, c.id LIMIT %(reach)s::bigint
),
free AS MATERIALIZED (
    SELECT j.ctid AS place FROM seen JOIN {jobs} j ON j.ctid = seen.place
    WHERE j.id || '' = seen.id AND j.state || '' = 'pending' AND j.ready AND j.queue || '' = seen.queue
        AND j.task || '' = seen.task AND j.rank + 0 = seen.rank
        AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM clock))
    ORDER BY seen.rank, seen.id LIMIT %(most)s::bigint
    FOR NO KEY UPDATE OF j SKIP LOCKED
),
taken AS (
    UPDATE {jobs} j SET
        state = 'running', ready = false, token = greatest(j.token + 1, clock.now),
        owner = %(owner)s::text, lease_until = clock.now + %(lease)s::bigint, claims = j.claims + 1,
        started_at = clock.now,
        unique_key = CASE WHEN j.unique_until = 'started' THEN NULL ELSE j.unique_key END,
        unique_until = CASE WHEN j.unique_until = 'started' THEN NULL ELSE j.unique_until END
    FROM free, clock WHERE j.ctid = free.place
    RETURNING {j_columns}
)
SELECT work.found, (SELECT count(*) FROM seen),
    (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint, t.*
FROM work LEFT JOIN taken t ON true;

-- name: ready_lanes
-- Every task name with a ready job in these queues: a skip scan, one step per name.
WITH RECURSIVE lane (queue, task) AS (
    SELECT q.queue, (
        SELECT min(j.task) FROM {jobs} j
        WHERE j.state = 'pending' AND j.ready AND j.queue = q.queue
    ) FROM unnest(%(queues)s::text[]) AS q (queue)
    UNION ALL
    SELECT lane.queue, (
        SELECT min(j.task) FROM {jobs} j
        WHERE j.state = 'pending' AND j.ready AND j.queue = lane.queue AND j.task > lane.task
    ) FROM lane WHERE lane.task IS NOT NULL
)
SELECT queue, task FROM lane WHERE task IS NOT NULL;

-- name: due_candidates
-- Ready jobs of these lanes in claim order, to be chosen from by the room of their queues.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT c.rank, c.id, l.queue
FROM unnest(%(lane_queues)s::text[], %(lane_tasks)s::text[]) AS l (queue, task)
CROSS JOIN LATERAL (
    SELECT j.id, j.rank FROM {jobs} j
    WHERE j.state = 'pending' AND j.ready AND j.queue = l.queue AND j.task = l.task
        AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM clock))
    ORDER BY j.rank, j.id LIMIT %(reach)s::bigint
) c
ORDER BY c.rank, c.id;

-- name: due_by_id
-- The same among these ids only; tasks NULL means every name.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT j.rank, j.id, j.queue FROM {jobs} j, clock
WHERE j.id = ANY(%(ids)s::text[]) AND j.state || '' = 'pending' AND j.ready
    AND (j.expires_at IS NULL OR j.expires_at > clock.now)
    AND j.queue || '' = ANY(%(queues)s::text[])
    AND (%(tasks)s::text[] IS NULL OR j.task || '' = ANY(%(tasks)s::text[]))
ORDER BY j.rank, j.id;

-- name: take_due
-- Take those of these pending jobs that nobody else takes, as rules.claimed_values says.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
free AS MATERIALIZED (
    SELECT j.ctid AS place FROM {jobs} j
    WHERE j.id = ANY(%(ids)s::text[]) AND j.state || '' = 'pending' AND j.ready
    ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {jobs} j SET
    state = 'running', ready = false, token = greatest(j.token + 1, clock.now),
    owner = %(owner)s::text, lease_until = clock.now + %(lease)s::bigint, claims = j.claims + 1,
    started_at = clock.now,
    unique_key = CASE WHEN j.unique_until = 'started' THEN NULL ELSE j.unique_key END,
    unique_until = CASE WHEN j.unique_until = 'started' THEN NULL ELSE j.unique_until END
FROM free, clock WHERE j.ctid = free.place
RETURNING {j_columns};

-- name: lapsed_candidates
-- Running jobs whose lease ran out, the longest ago first; ids or tasks NULL means all.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT j.lease_until, j.id, j.queue FROM {jobs} j, clock
WHERE j.state = 'running' AND j.lease_until <= clock.now AND j.queue = ANY(%(queues)s::text[])
    AND (%(tasks)s::text[] IS NULL OR j.task = ANY(%(tasks)s::text[]))
    AND (%(ids)s::text[] IS NULL OR j.id = ANY(%(ids)s::text[]))
ORDER BY j.lease_until, j.id;

-- name: take_lapsed
-- Take those of these running jobs over whose lease is still out, and that nobody else takes. A row
-- that its holder's own transaction locks is passed over: its holder lives.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
free AS MATERIALIZED (
    SELECT j.ctid AS place FROM {jobs} j, clock
    WHERE j.id = ANY(%(ids)s::text[]) AND j.state || '' = 'running' AND j.lease_until <= clock.now
    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE {jobs} j SET
    token = greatest(j.token + 1, clock.now), owner = %(owner)s::text,
    lease_until = clock.now + %(lease)s::bigint, claims = j.claims + 1, lapses = j.lapses + 1,
    started_at = clock.now
FROM free, clock WHERE j.ctid = free.place
RETURNING {j_columns};

-- name: resume
-- Repeat a claim to its owner, but for what it holds: the token stays, the lease starts anew.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
mine AS MATERIALIZED (
    SELECT j.ctid AS place, j.lease_until FROM {jobs} j
    WHERE j.state = 'running' AND j.owner = %(owner)s::text AND j.id <> ALL(%(held)s::text[])
    ORDER BY j.lease_until, j.id LIMIT %(most)s::bigint
    FOR NO KEY UPDATE SKIP LOCKED
),
resumed AS (
    UPDATE {jobs} j SET lease_until = clock.now + %(lease)s::bigint
    FROM mine, clock WHERE j.ctid = mine.place
    RETURNING {j_columns}, mine.lease_until AS until
)
SELECT r.* FROM resumed r ORDER BY r.until, r.id;

-- name: promote
-- The first jobs of these queues whose time has come may be claimed. What another claim promotes at
-- this moment is left to it. For those that take turns, the last turn of their key as well: the
-- statement sees the rows as they were before it.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
due AS MATERIALIZED (
    SELECT w.id FROM unnest(%(queues)s::text[]) AS q (queue) CROSS JOIN LATERAL (
        SELECT j.id, j.available_at FROM {jobs} j
        WHERE j.state = 'pending' AND NOT j.ready AND j.blocked IS NULL AND j.queue = q.queue
            AND j.available_at <= (SELECT now FROM clock)
        ORDER BY j.available_at, j.id LIMIT %(most)s::bigint
    ) w
    ORDER BY w.available_at, w.id LIMIT %(most)s::bigint
),
free AS MATERIALIZED (
    SELECT j.ctid AS place FROM due JOIN {jobs} j ON j.id = due.id
    WHERE j.state || '' = 'pending' AND NOT j.ready AND j.blocked IS NULL
        AND j.available_at + 0 <= (SELECT now FROM clock)
    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED
),
promoted AS (
    UPDATE {jobs} j SET ready = true, queued_at = j.available_at
    FROM free WHERE j.ctid = free.place
    RETURNING j.id, j.queue, j.fair_key, j.priority, j.available_at
)
SELECT p.*, CASE WHEN p.fair_key IS NOT NULL THEN (
    SELECT max(j.rank) FROM {jobs} j
    WHERE j.state = 'pending' AND j.fair_key IS NOT NULL AND (j.ready OR j.blocked IS NOT NULL)
        AND j.queue = p.queue AND j.fair_key = p.fair_key AND j.priority = p.priority
) END FROM promoted p;

-- name: take_turns
-- The places of jobs that have become due.
UPDATE {jobs} j SET rank = a.rank
FROM unnest(%(ids)s::text[], %(ranks)s::bigint[]) AS a (id, rank) WHERE j.id = a.id;

-- name: last_turns
-- The highest ranks of these keys of queues, at these priorities, among jobs that are due and wait.
SELECT a.queue, a.key, a.priority, l.rank
FROM unnest(%(queues)s::text[], %(keys)s::text[], %(priorities)s::integer[])
    AS a (queue, key, priority)
CROSS JOIN LATERAL (
    SELECT j.rank FROM {jobs} j
    WHERE j.state = 'pending' AND j.fair_key IS NOT NULL AND (j.ready OR j.blocked IS NOT NULL)
        AND j.queue = a.queue AND j.fair_key = a.key AND j.priority = a.priority
    ORDER BY j.rank DESC LIMIT 1
) l;

-- name: overdue_queues
-- Every queue that holds a pending job which can expire: a skip scan, one step per queue.
WITH RECURSIVE lane (queue) AS (
    SELECT min(j.queue) FROM {jobs} j WHERE j.state = 'pending' AND j.expires_at IS NOT NULL
    UNION ALL
    SELECT (
        SELECT min(j.queue) FROM {jobs} j
        WHERE j.state = 'pending' AND j.expires_at IS NOT NULL AND j.queue > lane.queue
    ) FROM lane WHERE lane.queue IS NOT NULL
)
SELECT queue FROM lane WHERE queue IS NOT NULL;

-- name: expire
-- The first pending jobs of these queues whose expires_at passed were not started in time.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
due AS MATERIALIZED (
    SELECT o.id, o.expires_at FROM unnest(%(queues)s::text[]) AS q (queue) CROSS JOIN LATERAL (
        SELECT j.id, j.expires_at FROM {jobs} j
        WHERE j.state = 'pending' AND j.expires_at IS NOT NULL AND j.queue = q.queue
            AND j.expires_at <= (SELECT now FROM clock)
        ORDER BY j.expires_at, j.id LIMIT %(most)s::bigint
    ) o
    ORDER BY o.expires_at, o.id LIMIT %(most)s::bigint
),
free AS MATERIALIZED (
    SELECT j.ctid AS place FROM due JOIN {jobs} j ON j.id = due.id
    WHERE j.state || '' = 'pending' AND j.expires_at + 0 <= (SELECT now FROM clock)
    ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
),
gone AS (
    DELETE FROM {jobs} j USING free, clock WHERE j.ctid = free.place
    RETURNING {j_columns}, clock.now
),
ended AS (
    INSERT INTO {finished} ({columns})
    SELECT {expired_columns} FROM gone
)
SELECT id, queue, concurrency_key, ready FROM gone ORDER BY expires_at, id;

-- name: extend
-- Prolong leases that have not run out; the cancel flags of those that were prolonged.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
held AS MATERIALIZED (
    SELECT a.*, j.ctid AS place FROM unnest(
        %(ids)s::text[], %(tokens)s::bigint[], %(owners)s::text[], %(lengths)s::bigint[],
        %(progress)s::text[]
    ) AS a (id, token, owner, length, progress)
    JOIN {jobs} j ON j.id = a.id
    WHERE j.token = a.token AND j.owner = a.owner AND j.state || '' = 'running'
        AND j.lease_until > (SELECT now FROM clock)
    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE {jobs} j SET
    lease_until = clock.now + held.length, progress = coalesce(held.progress, j.progress)
FROM held, clock WHERE j.ctid = held.place
RETURNING j.id, j.cancel_requested;

-- name: settle_final
-- End attempts, and with them jobs, where their holder still holds them and the cancel flag does
-- not ask for the other branch; those that ended, and whether their queue is limited.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
held AS MATERIALIZED (
    SELECT a.*, j.ctid AS place FROM unnest(
        %(ids)s::text[], %(tokens)s::bigint[], %(owners)s::text[], %(flags)s::boolean[],
        %(states)s::text[], %(failures)s::integer[], %(lapses)s::integer[],
        %(releases)s::integer[], %(results)s::bytea[], %(error)s::text[], %(errors)s::text[]
    ) AS a (
        id, token, owner, flag, state, failures, lapses, releases, result, error, errors
    )
    JOIN {jobs} j ON j.id = a.id
    WHERE j.token = a.token AND j.owner = a.owner AND j.state || '' = 'running'
        AND (a.flag IS NULL OR j.cancel_requested = a.flag)
    ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
),
gone AS (
    DELETE FROM {jobs} j USING held, clock WHERE j.ctid = held.place
    RETURNING {j_columns}, held.state AS to_state, held.failures AS to_failures,
        held.lapses AS to_lapses, held.releases AS to_releases, held.result AS to_result,
        held.error AS to_error, held.errors AS to_errors, clock.now
)
INSERT INTO {finished} ({columns})
SELECT {settled_columns} FROM gone
RETURNING id, queue, concurrency_key,
    queue = ANY(ARRAY(SELECT p.queue FROM {queues} p WHERE p.limits IS NOT NULL));

-- name: settle_pending
-- End attempts whose jobs wait for their next one; those that do, as for `settle_final`.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
held AS MATERIALIZED (
    SELECT a.*, j.ctid AS place, least(clock.now + a.delay, 253402300799999999) AS due
    FROM clock, unnest(
        %(ids)s::text[], %(tokens)s::bigint[], %(owners)s::text[], %(flags)s::boolean[],
        %(delays)s::bigint[], %(failures)s::integer[], %(lapses)s::integer[],
        %(releases)s::integer[], %(results)s::bytea[], %(error)s::text[], %(errors)s::text[]
    ) AS a (
        id, token, owner, flag, delay, failures, lapses, releases, result, error, errors
    )
    JOIN {jobs} j ON j.id = a.id
    WHERE j.token = a.token AND j.owner = a.owner AND j.state || '' = 'running'
        AND (a.flag IS NULL OR j.cancel_requested = a.flag)
    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE {jobs} j SET
    state = 'pending', failures = held.failures, lapses = held.lapses, releases = held.releases,
    result = held.result, error = held.error, errors = held.errors, lease_until = NULL,
    ready = held.delay = 0, available_at = held.due, queued_at = held.due,
    rank = held.due - j.priority::bigint * 3600000000, finished_at = NULL
FROM held WHERE j.ctid = held.place
RETURNING j.id, j.queue, j.concurrency_key,
    j.queue = ANY(ARRAY(SELECT p.queue FROM {queues} p WHERE p.limits IS NOT NULL));

-- name: fences
-- What decides about writes that show a token, for those of them that did not take effect.
SELECT id, token, owner, state, cancel_requested, lease_until <= {now}, queue, concurrency_key
FROM {jobs} WHERE id = ANY(%(ids)s::text[])
UNION ALL
SELECT id, token, owner, state, cancel_requested, false, queue, concurrency_key
FROM {finished} WHERE id = ANY(%(ids)s::text[]);

-- name: unlocked
-- Those of these living jobs that nobody has locked.
SELECT id FROM {jobs} WHERE id = ANY(%(ids)s::text[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED;

-- name: hold
-- Lock the row of a running job for its holder.
SELECT id FROM {jobs}
WHERE id = %(id)s::text AND token = %(token)s::bigint AND owner = %(owner)s::text
    AND state || '' = 'running'
FOR NO KEY UPDATE;

-- name: rows
-- These jobs.
SELECT {columns} FROM {jobs} WHERE id = ANY(%(ids)s::text[])
UNION ALL SELECT {columns} FROM {finished} WHERE id = ANY(%(ids)s::text[]);

-- name: lock_living
-- Those of these living jobs that nobody else has locked, to be written or removed.
SELECT {columns} FROM {jobs} WHERE id = ANY(%(ids)s::text[])
ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: await_living
-- These living jobs, locked as soon as others let them go.
SELECT {columns} FROM {jobs} WHERE id = ANY(%(ids)s::text[]) ORDER BY id FOR UPDATE;

-- name: lock_finished
-- These jobs that ended, locked.
SELECT {columns} FROM {finished} WHERE id = ANY(%(ids)s::text[]) ORDER BY id FOR UPDATE;

-- name: lock_lapsed
-- Running jobs whose lease ran out, in every queue, the longest ago first, locked.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT clock.now, {j_columns} FROM {jobs} j, clock
WHERE j.state = 'running' AND j.lease_until <= clock.now
ORDER BY j.lease_until, j.id LIMIT %(most)s::bigint
FOR UPDATE OF j SKIP LOCKED;

-- name: write_row
-- All columns of one living job, for the rare steps that are computed from its whole row.
UPDATE {jobs} SET ({columns}) = ROW ({values}) WHERE id = %(id)s::text;

-- name: remove_living
-- Take these jobs out of those that live.
DELETE FROM {jobs} WHERE id = ANY(%(ids)s::text[]);

-- name: remove_finished
-- Take these jobs out of those that ended.
DELETE FROM {finished} WHERE id = ANY(%(ids)s::text[]);

-- name: request_cancel
-- Ask the holders of these running jobs to stop.
UPDATE {jobs} SET cancel_requested = true
WHERE id = ANY(%(ids)s::text[]) AND state || '' = 'running';

-- name: pause
-- A moment for others to end what they do.
SELECT pg_sleep(0.01);

-- name: next_due_in_lanes
-- Microseconds until the first job of these queues and tasks is due, paused queues left out, and
-- limited ones unless asked for; and which of them are limited.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT min(CASE
    WHEN (
        SELECT min(j.rank) FROM {jobs} j
        WHERE j.state = 'pending' AND j.ready AND j.queue = q.queue AND j.task = t.task
    ) IS NOT NULL THEN 0
    ELSE (
        SELECT greatest(0, min(j.available_at) - clock.now) FROM {jobs} j
        WHERE j.state = 'pending' AND NOT j.ready AND j.blocked IS NULL AND j.queue = q.queue
            AND j.task = t.task
        HAVING min(j.available_at) IS NOT NULL
    )
END), ARRAY(
    SELECT p.queue FROM {queues} p
    WHERE p.queue = ANY(%(queues)s::text[]) AND p.limits IS NOT NULL AND NOT p.paused
    ORDER BY p.queue
)
FROM clock, unnest(%(queues)s::text[]) AS q (queue), unnest(%(tasks)s::text[]) AS t (task)
WHERE NOT EXISTS (
    SELECT FROM {queues} p
    WHERE p.queue = q.queue
        AND (p.paused OR p.limits IS NOT NULL AND NOT %(limited)s::boolean)
);

-- name: next_due_in_queues
-- The same for every task name.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT min(CASE
    WHEN (
        SELECT min(j.task) FROM {jobs} j
        WHERE j.state = 'pending' AND j.ready AND j.queue = q.queue
    ) IS NOT NULL THEN 0
    ELSE (
        SELECT greatest(0, min(j.available_at) - clock.now) FROM {jobs} j
        WHERE j.state = 'pending' AND NOT j.ready AND j.blocked IS NULL AND j.queue = q.queue
        HAVING min(j.available_at) IS NOT NULL
    )
END), ARRAY(
    SELECT p.queue FROM {queues} p
    WHERE p.queue = ANY(%(queues)s::text[]) AND p.limits IS NOT NULL AND NOT p.paused
    ORDER BY p.queue
)
FROM clock, unnest(%(queues)s::text[]) AS q (queue)
WHERE NOT EXISTS (
    SELECT FROM {queues} p
    WHERE p.queue = q.queue
        AND (p.paused OR p.limits IS NOT NULL AND NOT %(limited)s::boolean)
);

-- name: scan_end
-- The last of so many jobs before an id, over both tables; nothing, if there are not that many.
SELECT id FROM (
    (
        SELECT id FROM {jobs} WHERE id < %(before)s::text
        ORDER BY id DESC LIMIT %(scan)s::bigint
    ) UNION ALL (
        SELECT id FROM {finished} WHERE id < %(before)s::text
        ORDER BY id DESC LIMIT %(scan)s::bigint
    )
) AS both_kinds
ORDER BY id DESC LIMIT 1 OFFSET %(scan)s::bigint - 1;

-- name: find_in_range
-- Matching jobs before an id and not before another, newest first; what is NULL matches all.
SELECT {columns} FROM (
    (
        SELECT {columns} FROM {jobs}
        WHERE id < %(before)s::text AND id >= %(floor)s::text
            AND (%(states)s::text[] IS NULL OR state || '' = ANY(%(states)s::text[]))
            AND (%(tasks)s::text[] IS NULL OR task || '' = ANY(%(tasks)s::text[]))
            AND (%(queues)s::text[] IS NULL OR queue || '' = ANY(%(queues)s::text[]))
            AND (%(keys)s::text[] IS NULL OR (unique_key = ANY(%(keys)s::text[])) IS TRUE)
            AND (%(schedules)s::text[] IS NULL OR (schedule = ANY(%(schedules)s::text[])) IS TRUE)
            AND (%(actors)s::text[] IS NULL OR actor || '' = ANY(%(actors)s::text[]))
            AND (%(created_from)s::bigint IS NULL OR created_at >= %(created_from)s::bigint)
            AND (%(created_to)s::bigint IS NULL OR created_at < %(created_to)s::bigint)
            AND (%(finished_from)s::bigint IS NULL OR finished_at + 0 >= %(finished_from)s::bigint)
            AND (%(finished_to)s::bigint IS NULL OR finished_at + 0 < %(finished_to)s::bigint)
        ORDER BY id DESC LIMIT %(most)s::bigint
    ) UNION ALL (
        SELECT {columns} FROM {finished}
        WHERE id < %(before)s::text AND id >= %(floor)s::text
            AND (%(states)s::text[] IS NULL OR state || '' = ANY(%(states)s::text[]))
            AND (%(tasks)s::text[] IS NULL OR task || '' = ANY(%(tasks)s::text[]))
            AND (%(queues)s::text[] IS NULL OR queue || '' = ANY(%(queues)s::text[]))
            AND (%(keys)s::text[] IS NULL OR (unique_key = ANY(%(keys)s::text[])) IS TRUE)
            AND (%(schedules)s::text[] IS NULL OR (schedule = ANY(%(schedules)s::text[])) IS TRUE)
            AND (%(actors)s::text[] IS NULL OR actor || '' = ANY(%(actors)s::text[]))
            AND (%(created_from)s::bigint IS NULL OR created_at >= %(created_from)s::bigint)
            AND (%(created_to)s::bigint IS NULL OR created_at < %(created_to)s::bigint)
            AND (%(finished_from)s::bigint IS NULL OR finished_at + 0 >= %(finished_from)s::bigint)
            AND (%(finished_to)s::bigint IS NULL OR finished_at + 0 < %(finished_to)s::bigint)
        ORDER BY id DESC LIMIT %(most)s::bigint
    )
) AS both_kinds
ORDER BY id DESC LIMIT %(most)s::bigint;

-- name: find_among_ids
-- The same among these ids only.
SELECT {columns} FROM (
    (
        SELECT {columns} FROM {jobs}
        WHERE id = ANY(%(ids)s::text[]) AND id < %(before)s::text
            AND (%(states)s::text[] IS NULL OR state || '' = ANY(%(states)s::text[]))
            AND (%(tasks)s::text[] IS NULL OR task || '' = ANY(%(tasks)s::text[]))
            AND (%(queues)s::text[] IS NULL OR queue || '' = ANY(%(queues)s::text[]))
            AND (%(keys)s::text[] IS NULL OR (unique_key = ANY(%(keys)s::text[])) IS TRUE)
            AND (%(schedules)s::text[] IS NULL OR (schedule = ANY(%(schedules)s::text[])) IS TRUE)
            AND (%(actors)s::text[] IS NULL OR actor || '' = ANY(%(actors)s::text[]))
            AND (%(created_from)s::bigint IS NULL OR created_at >= %(created_from)s::bigint)
            AND (%(created_to)s::bigint IS NULL OR created_at < %(created_to)s::bigint)
            AND (%(finished_from)s::bigint IS NULL OR finished_at + 0 >= %(finished_from)s::bigint)
            AND (%(finished_to)s::bigint IS NULL OR finished_at + 0 < %(finished_to)s::bigint)
        ORDER BY id DESC LIMIT %(most)s::bigint
    ) UNION ALL (
        SELECT {columns} FROM {finished}
        WHERE id = ANY(%(ids)s::text[]) AND id < %(before)s::text
            AND (%(states)s::text[] IS NULL OR state || '' = ANY(%(states)s::text[]))
            AND (%(tasks)s::text[] IS NULL OR task || '' = ANY(%(tasks)s::text[]))
            AND (%(queues)s::text[] IS NULL OR queue || '' = ANY(%(queues)s::text[]))
            AND (%(keys)s::text[] IS NULL OR (unique_key = ANY(%(keys)s::text[])) IS TRUE)
            AND (%(schedules)s::text[] IS NULL OR (schedule = ANY(%(schedules)s::text[])) IS TRUE)
            AND (%(actors)s::text[] IS NULL OR actor || '' = ANY(%(actors)s::text[]))
            AND (%(created_from)s::bigint IS NULL OR created_at >= %(created_from)s::bigint)
            AND (%(created_to)s::bigint IS NULL OR created_at < %(created_to)s::bigint)
            AND (%(finished_from)s::bigint IS NULL OR finished_at + 0 >= %(finished_from)s::bigint)
            AND (%(finished_to)s::bigint IS NULL OR finished_at + 0 < %(finished_to)s::bigint)
        ORDER BY id DESC LIMIT %(most)s::bigint
    )
) AS both_kinds
ORDER BY id DESC LIMIT %(most)s::bigint;

-- name: inside_in_range
-- What tells of matching jobs whether they match inside, too.
SELECT id, tags, metadata, error FROM (
    (
        SELECT id, tags, metadata, error FROM {jobs}
        WHERE id < %(before)s::text AND id >= %(floor)s::text
            AND (%(states)s::text[] IS NULL OR state || '' = ANY(%(states)s::text[]))
            AND (%(tasks)s::text[] IS NULL OR task || '' = ANY(%(tasks)s::text[]))
            AND (%(queues)s::text[] IS NULL OR queue || '' = ANY(%(queues)s::text[]))
            AND (%(keys)s::text[] IS NULL OR (unique_key = ANY(%(keys)s::text[])) IS TRUE)
            AND (%(schedules)s::text[] IS NULL OR (schedule = ANY(%(schedules)s::text[])) IS TRUE)
            AND (%(actors)s::text[] IS NULL OR actor || '' = ANY(%(actors)s::text[]))
            AND (%(created_from)s::bigint IS NULL OR created_at >= %(created_from)s::bigint)
            AND (%(created_to)s::bigint IS NULL OR created_at < %(created_to)s::bigint)
            AND (%(finished_from)s::bigint IS NULL OR finished_at + 0 >= %(finished_from)s::bigint)
            AND (%(finished_to)s::bigint IS NULL OR finished_at + 0 < %(finished_to)s::bigint)
    ) UNION ALL (
        SELECT id, tags, metadata, error FROM {finished}
        WHERE id < %(before)s::text AND id >= %(floor)s::text
            AND (%(states)s::text[] IS NULL OR state || '' = ANY(%(states)s::text[]))
            AND (%(tasks)s::text[] IS NULL OR task || '' = ANY(%(tasks)s::text[]))
            AND (%(queues)s::text[] IS NULL OR queue || '' = ANY(%(queues)s::text[]))
            AND (%(keys)s::text[] IS NULL OR (unique_key = ANY(%(keys)s::text[])) IS TRUE)
            AND (%(schedules)s::text[] IS NULL OR (schedule = ANY(%(schedules)s::text[])) IS TRUE)
            AND (%(actors)s::text[] IS NULL OR actor || '' = ANY(%(actors)s::text[]))
            AND (%(created_from)s::bigint IS NULL OR created_at >= %(created_from)s::bigint)
            AND (%(created_to)s::bigint IS NULL OR created_at < %(created_to)s::bigint)
            AND (%(finished_from)s::bigint IS NULL OR finished_at + 0 >= %(finished_from)s::bigint)
            AND (%(finished_to)s::bigint IS NULL OR finished_at + 0 < %(finished_to)s::bigint)
    )
) AS both_kinds
ORDER BY id DESC;

-- name: inside_among_ids
-- The same among these ids only.
SELECT id, tags, metadata, error FROM (
    (
        SELECT id, tags, metadata, error FROM {jobs}
        WHERE id = ANY(%(ids)s::text[]) AND id < %(before)s::text
            AND (%(states)s::text[] IS NULL OR state || '' = ANY(%(states)s::text[]))
            AND (%(tasks)s::text[] IS NULL OR task || '' = ANY(%(tasks)s::text[]))
            AND (%(queues)s::text[] IS NULL OR queue || '' = ANY(%(queues)s::text[]))
            AND (%(keys)s::text[] IS NULL OR (unique_key = ANY(%(keys)s::text[])) IS TRUE)
            AND (%(schedules)s::text[] IS NULL OR (schedule = ANY(%(schedules)s::text[])) IS TRUE)
            AND (%(actors)s::text[] IS NULL OR actor || '' = ANY(%(actors)s::text[]))
            AND (%(created_from)s::bigint IS NULL OR created_at >= %(created_from)s::bigint)
            AND (%(created_to)s::bigint IS NULL OR created_at < %(created_to)s::bigint)
            AND (%(finished_from)s::bigint IS NULL OR finished_at + 0 >= %(finished_from)s::bigint)
            AND (%(finished_to)s::bigint IS NULL OR finished_at + 0 < %(finished_to)s::bigint)
    ) UNION ALL (
        SELECT id, tags, metadata, error FROM {finished}
        WHERE id = ANY(%(ids)s::text[]) AND id < %(before)s::text
            AND (%(states)s::text[] IS NULL OR state || '' = ANY(%(states)s::text[]))
            AND (%(tasks)s::text[] IS NULL OR task || '' = ANY(%(tasks)s::text[]))
            AND (%(queues)s::text[] IS NULL OR queue || '' = ANY(%(queues)s::text[]))
            AND (%(keys)s::text[] IS NULL OR (unique_key = ANY(%(keys)s::text[])) IS TRUE)
            AND (%(schedules)s::text[] IS NULL OR (schedule = ANY(%(schedules)s::text[])) IS TRUE)
            AND (%(actors)s::text[] IS NULL OR actor || '' = ANY(%(actors)s::text[]))
            AND (%(created_from)s::bigint IS NULL OR created_at >= %(created_from)s::bigint)
            AND (%(created_to)s::bigint IS NULL OR created_at < %(created_to)s::bigint)
            AND (%(finished_from)s::bigint IS NULL OR finished_at + 0 >= %(finished_from)s::bigint)
            AND (%(finished_to)s::bigint IS NULL OR finished_at + 0 < %(finished_to)s::bigint)
    )
) AS both_kinds
ORDER BY id DESC;

-- name: stats
-- The depth of every queue, or of these. Reads both tables: never on a hot path.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
both_kinds AS (
    SELECT queue, state, available_at, blocked, lease_until FROM {jobs}
    WHERE %(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[])
    UNION ALL
    SELECT queue, state, available_at, blocked, lease_until FROM {finished}
    WHERE %(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[])
)
SELECT queue,
    count(*) FILTER (WHERE state = 'pending' AND available_at <= now),
    count(*) FILTER (WHERE state = 'pending' AND blocked IS NOT NULL),
    count(*) FILTER (WHERE state = 'pending' AND available_at > now),
    count(*) FILTER (WHERE state = 'running'),
    count(*) FILTER (WHERE state = 'running' AND lease_until <= now),
    count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state = 'failed'),
    count(*) FILTER (WHERE state = 'cancelled'), count(*) FILTER (WHERE state = 'expired'),
    max(now) - min(available_at) FILTER (WHERE state = 'pending' AND available_at <= now)
FROM both_kinds, clock GROUP BY queue ORDER BY queue;

-- name: twins
-- The living jobs with these unique keys.
SELECT {columns} FROM {jobs}
WHERE unique_key = ANY(%(keys)s::text[]) AND unique_key IS NOT NULL;

-- name: reservations
-- Who reserved these keys.
SELECT key, job_id, at FROM {reservations} WHERE key = ANY(%(keys)s::text[]);

-- name: reserve
-- Take a key for ever.
INSERT INTO {reservations} (key, job_id, at)
VALUES (%(key)s::text, %(job_id)s::text, %(at)s::bigint);

-- name: release_reservation
-- Free a key, if this job holds it; owner NULL: whoever does.
DELETE FROM {reservations}
WHERE key = %(key)s::text AND (%(owner)s::text IS NULL OR job_id = %(owner)s::text)
RETURNING key;

-- name: jobs_of_ticks
-- The jobs of these ticks, in any state.
SELECT t.schedule, t.tick, j.id
FROM unnest(%(schedules)s::text[], %(ticks)s::bigint[]) AS t (schedule, tick)
JOIN {jobs} j ON j.schedule = t.schedule AND j.tick = t.tick AND j.schedule IS NOT NULL
UNION ALL
SELECT t.schedule, t.tick, f.id
FROM unnest(%(schedules)s::text[], %(ticks)s::bigint[]) AS t (schedule, tick)
JOIN {finished} f ON f.schedule = t.schedule AND f.tick = t.tick AND f.schedule IS NOT NULL;

-- name: living_of_schedule
-- Pending and running jobs of a schedule, the oldest first.
SELECT {columns} FROM {jobs}
WHERE schedule = %(schedule)s::text AND schedule IS NOT NULL ORDER BY id;

-- name: lock_schedules
-- These schedules, locked.
SELECT {schedule_columns} FROM {schedules} WHERE name = ANY(%(names)s::text[])
ORDER BY name FOR UPDATE;

-- name: all_schedules
-- All of them, by name.
SELECT {schedule_columns} FROM {schedules} ORDER BY name;

-- name: insert_schedule
-- Keep a new schedule.
INSERT INTO {schedules} ({schedule_columns}) VALUES (
    %(name)s::text, %(source)s::text, %(task)s::text, %(definition)s::text, %(overlap)s::text,
    %(next_at)s::bigint, %(last_at)s::bigint, %(paused)s::boolean, %(revision)s::bigint
);

-- name: write_schedule
-- Keep a schedule in the place of what was kept of it.
UPDATE {schedules} SET
    source = %(source)s::text, task = %(task)s::text, definition = %(definition)s::text,
    overlap = %(overlap)s::text, next_at = %(next_at)s::bigint, last_at = %(last_at)s::bigint,
    paused = %(paused)s::boolean, revision = %(revision)s::bigint
WHERE name = %(name)s::text;

-- name: remove_schedule
-- Forget a schedule; its jobs stay.
DELETE FROM {schedules} WHERE name = %(name)s::text;

-- name: draw_revision
-- A revision that no schedule of this store ever had. Savers take turns here.
UPDATE {revisions} SET last = last + 1 RETURNING last;

-- name: configure_queue
-- How a queue is treated from now on.
INSERT INTO {queues} (queue, paused, limits)
VALUES (%(queue)s::text, %(paused)s::boolean, %(limits)s::text)
ON CONFLICT (queue) DO UPDATE SET paused = EXCLUDED.paused, limits = EXCLUDED.limits;

-- name: queue_settings
-- All settings that were ever given, by queue.
SELECT queue, paused, limits FROM {queues} ORDER BY queue;

-- name: ensure_queue
-- A queue of which nothing was said has the defaults.
INSERT INTO {queues} (queue, paused) VALUES (%(queue)s::text, false)
ON CONFLICT (queue) DO NOTHING;

-- name: lock_queue
-- The settings of a queue, locked.
SELECT queue, paused, limits FROM {queues} WHERE queue = %(queue)s::text FOR NO KEY UPDATE;

-- name: limits_of
-- The limits of those of these queues that have any.
SELECT queue, limits FROM {queues}
WHERE queue = ANY(%(queues)s::text[]) AND limits IS NOT NULL ORDER BY queue;

-- name: all_limits
-- The limits of all queues that have any.
SELECT queue, limits FROM {queues} WHERE limits IS NOT NULL ORDER BY queue;

-- name: lock_special
-- Those of these queues that are paused or limited, and how. Claims of them take turns here.
SELECT queue, paused, limits FROM {queues}
WHERE queue = ANY(%(queues)s::text[]) AND (paused OR limits IS NOT NULL)
ORDER BY queue FOR NO KEY UPDATE;

-- name: lock_loosely
-- The same for a step that a sweep makes up for, so that nobody waits for the disk at its end.
SELECT set_config('synchronous_commit', 'off', true) FROM {queues}
WHERE queue = ANY(%(queues)s::text[]) AND (paused OR limits IS NOT NULL)
ORDER BY queue FOR NO KEY UPDATE;

-- name: chores
-- Whether a job of these queues has to be promoted, and whether one has to expire.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT EXISTS (
    SELECT FROM unnest(%(queues)s::text[]) AS q (queue), clock WHERE clock.now >= (
        SELECT min(j.available_at) FROM {jobs} j
        WHERE j.state = 'pending' AND NOT j.ready AND j.blocked IS NULL AND j.queue = q.queue
    )
), EXISTS (
    SELECT FROM unnest(%(queues)s::text[]) AS q (queue), clock WHERE clock.now >= (
        SELECT min(j.expires_at) FROM {jobs} j
        WHERE j.state = 'pending' AND j.expires_at IS NOT NULL AND j.queue = q.queue
    )
);

-- name: running_in_queues
-- How many jobs of these queues run.
SELECT q.queue, (
    SELECT count(*) FROM {jobs} j WHERE j.state = 'running' AND j.queue = q.queue
) FROM unnest(%(queues)s::text[]) AS q (queue);

-- name: slots_taken
-- How many jobs of these keys run.
SELECT k.queue, k.key, (
    SELECT count(*) FROM {jobs} j
    WHERE j.state = 'running' AND j.concurrency_key IS NOT NULL
        AND j.queue = k.queue AND j.concurrency_key = k.key
) FROM unnest(%(queues)s::text[], %(keys)s::text[]) AS k (queue, key);

-- name: limited_candidates
-- Ready jobs of these lanes in claim order, with the keys that limits ask for.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT c.rank, c.id, l.queue, c.concurrency_key, c.rate_key
FROM unnest(%(lane_queues)s::text[], %(lane_tasks)s::text[]) AS l (queue, task)
CROSS JOIN LATERAL (
    SELECT j.id, j.rank, j.concurrency_key, j.rate_key FROM {jobs} j
    WHERE j.state = 'pending' AND j.ready AND j.queue = l.queue AND j.task = l.task
        AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM clock))
    ORDER BY j.rank, j.id LIMIT %(reach)s::bigint
) c
ORDER BY c.rank, c.id LIMIT %(reach)s::bigint;

-- name: limited_by_id
-- The same among these ids only; tasks NULL means every name.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT j.rank, j.id, j.queue, j.concurrency_key, j.rate_key FROM {jobs} j, clock
WHERE j.id = ANY(%(ids)s::text[]) AND j.state || '' = 'pending' AND j.ready
    AND (j.expires_at IS NULL OR j.expires_at > clock.now)
    AND j.queue || '' = ANY(%(queues)s::text[])
    AND (%(tasks)s::text[] IS NULL OR j.task || '' = ANY(%(tasks)s::text[]))
ORDER BY j.rank, j.id;

-- name: lock_lapsed_others
-- Running jobs of these queues whose lease ran out, but for those of these tasks and ids (NULL: of
-- all), the longest ago first, locked.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT clock.now, {j_columns} FROM {jobs} j, clock
WHERE j.state = 'running' AND j.lease_until <= clock.now AND j.queue = ANY(%(queues)s::text[])
    AND NOT (
        (%(tasks)s::text[] IS NULL OR j.task = ANY(%(tasks)s::text[]))
        AND (%(ids)s::text[] IS NULL OR j.id = ANY(%(ids)s::text[]))
    )
ORDER BY j.lease_until, j.id LIMIT %(most)s::bigint
FOR UPDATE OF j SKIP LOCKED;

-- name: block
-- Limits hold these ready jobs back. One that somebody has locked is met again.
WITH free AS MATERIALIZED (
    SELECT j.ctid AS place, a.reason
    FROM unnest(%(ids)s::text[], %(reasons)s::text[]) AS a (id, reason)
    JOIN {jobs} j ON j.id = a.id
    WHERE j.state || '' = 'pending' AND j.ready
    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE {jobs} j SET ready = false, blocked = free.reason FROM free WHERE j.ctid = free.place;

-- name: unblock_queue
-- All blocked jobs of a queue are to be looked at again.
UPDATE {jobs} SET ready = true, blocked = NULL
WHERE id IN (
    SELECT j.id FROM {jobs} j WHERE j.blocked = 'concurrency' AND j.queue = %(queue)s::text
    UNION ALL
    SELECT j.id FROM {jobs} j WHERE j.blocked = 'rate' AND j.queue = %(queue)s::text
);

-- name: give_slots
-- The first that wait for a slot of these keys, so many of each task, are ready; passing over those
-- that somebody has locked. A skip scan, one step per task.
WITH RECURSIVE lane (queue, key, most, task) AS (
    SELECT k.queue, k.key, k.most, (
        SELECT min(j.task) FROM {jobs} j
        WHERE j.blocked = 'concurrency' AND j.queue = k.queue AND j.concurrency_key = k.key
    ) FROM unnest(%(queues)s::text[], %(keys)s::text[], %(counts)s::bigint[]) AS k (queue, key, most)
    UNION ALL
    SELECT lane.queue, lane.key, lane.most, (
        SELECT min(j.task) FROM {jobs} j
        WHERE j.blocked = 'concurrency' AND j.queue = lane.queue AND j.concurrency_key = lane.key
            AND j.task > lane.task
    ) FROM lane WHERE lane.task IS NOT NULL
),
next AS MATERIALIZED (
    SELECT c.id FROM lane CROSS JOIN LATERAL (
        SELECT j.id FROM {jobs} j
        WHERE j.blocked = 'concurrency' AND j.queue = lane.queue AND j.concurrency_key = lane.key
            AND j.task = lane.task
        ORDER BY j.rank, j.id LIMIT lane.most FOR NO KEY UPDATE SKIP LOCKED
    ) c WHERE lane.task IS NOT NULL
)
UPDATE {jobs} j SET ready = true, blocked = NULL FROM next WHERE j.id = next.id
RETURNING j.id, j.queue;

-- name: give_starts
-- The same for those that wait until the rate of these keys allows more.
WITH RECURSIVE lane (queue, key, most, task) AS (
    SELECT k.queue, k.key, k.most, (
        SELECT min(j.task) FROM {jobs} j
        WHERE j.blocked = 'rate' AND j.queue = k.queue AND j.rate_key = k.key
    ) FROM unnest(%(queues)s::text[], %(keys)s::text[], %(counts)s::bigint[]) AS k (queue, key, most)
    UNION ALL
    SELECT lane.queue, lane.key, lane.most, (
        SELECT min(j.task) FROM {jobs} j
        WHERE j.blocked = 'rate' AND j.queue = lane.queue AND j.rate_key = lane.key
            AND j.task > lane.task
    ) FROM lane WHERE lane.task IS NOT NULL
),
next AS MATERIALIZED (
    SELECT c.id FROM lane CROSS JOIN LATERAL (
        SELECT j.id FROM {jobs} j
        WHERE j.blocked = 'rate' AND j.queue = lane.queue AND j.rate_key = lane.key
            AND j.task = lane.task
        ORDER BY j.rank, j.id LIMIT lane.most FOR NO KEY UPDATE SKIP LOCKED
    ) c WHERE lane.task IS NOT NULL
)
UPDATE {jobs} j SET ready = true, blocked = NULL FROM next WHERE j.id = next.id
RETURNING j.id, j.queue;

-- name: repair_slots
-- The first that wait for a slot which nobody has and nobody is to take next, of these queues with so
-- many slots per key, are ready: what is left to do if a process died after it freed one.
WITH RECURSIVE lane (queue, slots, key, task) AS (
    SELECT q.queue, q.slots, f.key, f.task
    FROM unnest(%(queues)s::text[], %(slots)s::bigint[]) AS q (queue, slots) CROSS JOIN LATERAL (
        SELECT j.concurrency_key AS key, j.task FROM {jobs} j
        WHERE j.blocked = 'concurrency' AND j.queue = q.queue
        ORDER BY j.concurrency_key, j.task LIMIT 1
    ) f
    UNION ALL
    SELECT lane.queue, lane.slots, n.key, n.task FROM lane CROSS JOIN LATERAL (
        SELECT j.concurrency_key AS key, j.task FROM {jobs} j
        WHERE j.blocked = 'concurrency' AND j.queue = lane.queue
            AND (j.concurrency_key, j.task) > (lane.key, lane.task)
        ORDER BY j.concurrency_key, j.task LIMIT 1
    ) n
),
idle AS MATERIALIZED (
    SELECT lane.* FROM lane WHERE lane.slots > (
        SELECT count(*) FROM {jobs} j
        WHERE j.state = 'running' AND j.concurrency_key IS NOT NULL
            AND j.queue = lane.queue AND j.concurrency_key = lane.key
    ) + (
        SELECT count(*) FROM (
            SELECT FROM {jobs} j
            WHERE j.state = 'pending' AND j.ready AND j.concurrency_key IS NOT NULL
                AND j.queue = lane.queue AND j.concurrency_key = lane.key AND j.task = lane.task
            LIMIT lane.slots
        ) AS spoken_for
    ) LIMIT %(most)s::bigint
),
next AS MATERIALIZED (
    SELECT c.id FROM idle CROSS JOIN LATERAL (
        SELECT j.id FROM {jobs} j
        WHERE j.blocked = 'concurrency' AND j.queue = idle.queue AND j.concurrency_key = idle.key
            AND j.task = idle.task
        ORDER BY j.rank, j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
    ) c
)
UPDATE {jobs} j SET ready = true, blocked = NULL FROM next WHERE j.id = next.id
RETURNING j.id, j.queue;

-- name: repair_keys
-- The same for these keys, with so many slots each.
WITH RECURSIVE lane (queue, key, slots, task) AS (
    SELECT k.queue, k.key, k.slots, (
        SELECT min(j.task) FROM {jobs} j
        WHERE j.blocked = 'concurrency' AND j.queue = k.queue AND j.concurrency_key = k.key
    ) FROM unnest(%(queues)s::text[], %(keys)s::text[], %(slots)s::bigint[])
        AS k (queue, key, slots)
    UNION ALL
    SELECT lane.queue, lane.key, lane.slots, (
        SELECT min(j.task) FROM {jobs} j
        WHERE j.blocked = 'concurrency' AND j.queue = lane.queue AND j.concurrency_key = lane.key
            AND j.task > lane.task
    ) FROM lane WHERE lane.task IS NOT NULL
),
idle AS MATERIALIZED (
    SELECT lane.* FROM lane WHERE lane.task IS NOT NULL AND lane.slots > (
        SELECT count(*) FROM {jobs} j
        WHERE j.state = 'running' AND j.concurrency_key IS NOT NULL
            AND j.queue = lane.queue AND j.concurrency_key = lane.key
    ) + (
        SELECT count(*) FROM (
            SELECT FROM {jobs} j
            WHERE j.state = 'pending' AND j.ready AND j.concurrency_key IS NOT NULL
                AND j.queue = lane.queue AND j.concurrency_key = lane.key AND j.task = lane.task
            LIMIT lane.slots
        ) AS spoken_for
    )
),
next AS MATERIALIZED (
    SELECT c.id FROM idle CROSS JOIN LATERAL (
        SELECT j.id FROM {jobs} j
        WHERE j.blocked = 'concurrency' AND j.queue = idle.queue AND j.concurrency_key = idle.key
            AND j.task = idle.task
        ORDER BY j.rank, j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
    ) c
)
UPDATE {jobs} j SET ready = true, blocked = NULL FROM next WHERE j.id = next.id
RETURNING j.id, j.queue;

-- name: beyond_rate
-- Those of these keys of which some job waits until their rate allows more.
SELECT k.queue, k.key FROM unnest(%(queues)s::text[], %(keys)s::text[]) AS k (queue, key)
WHERE (
    SELECT min(j.task) FROM {jobs} j
    WHERE j.blocked = 'rate' AND j.queue = k.queue AND j.rate_key = k.key
) IS NOT NULL;

-- name: rates
-- What is kept of these rates.
SELECT r.queue, r.key, r.arrival, r.wake_at
FROM unnest(%(queues)s::text[], %(keys)s::text[]) AS k (queue, key)
JOIN {rates} r ON r.queue = k.queue AND r.key = k.key;

-- name: keep_rates
-- Keep what is known of rates.
INSERT INTO {rates} (queue, key, arrival, wake_at)
SELECT * FROM unnest(
    %(queues)s::text[], %(keys)s::text[], %(arrivals)s::bigint[], %(wakes)s::bigint[]
)
ON CONFLICT (queue, key) DO UPDATE SET arrival = EXCLUDED.arrival, wake_at = EXCLUDED.wake_at;

-- name: rates_to_wake
-- The rates of these queues whose blocked jobs are to be looked at, see tenure.core.limits.wakes.
SELECT c.* FROM unnest(%(queues)s::text[], %(longest)s::bigint[]) AS q (queue, longest)
CROSS JOIN LATERAL (
    SELECT r.queue, r.key, r.arrival, r.wake_at FROM {rates} r
    WHERE r.queue = q.queue AND r.wake_at IS NOT NULL
        AND (r.wake_at <= %(at)s::bigint OR r.wake_at > %(at)s::bigint + q.longest)
    ORDER BY r.wake_at, r.key LIMIT %(most)s::bigint
) c
ORDER BY c.wake_at, c.queue, c.key LIMIT %(most)s::bigint;

-- name: first_wakes
-- When that is to be next, by queue.
SELECT q.queue, (
    SELECT min(r.wake_at) FROM {rates} r WHERE r.queue = q.queue AND r.wake_at IS NOT NULL
) FROM unnest(%(queues)s::text[]) AS q (queue);

-- name: wake_nobody
-- No blocked job of a queue is to be looked at any more.
UPDATE {rates} SET wake_at = NULL WHERE queue = %(queue)s::text AND wake_at IS NOT NULL;

-- name: forget_rates
-- Remove what says no more than a rate that is not kept, see tenure.core.limits.is_over.
DELETE FROM {rates} WHERE wake_at IS NULL AND arrival <= {now};

-- name: forget_workers
-- Remove workers whose word no longer holds, but for this one.
DELETE FROM {workers} WHERE until <= {now} AND id <> %(id)s::text;

-- name: forget_worker
-- Remove what a worker said of itself.
DELETE FROM {workers} WHERE id = %(id)s::text;

-- name: announce
-- Keep what a worker says of itself, until then.
INSERT INTO {workers} (id, until, info)
VALUES (%(id)s::text, %(until)s::bigint, %(info)s::text)
ON CONFLICT (id) DO UPDATE SET until = EXCLUDED.until, info = EXCLUDED.info;

-- name: workers
-- What workers said whose word still holds, by id.
SELECT info FROM {workers} WHERE until > {now} ORDER BY id;

-- name: conditions
-- What tells whether a job is in a possible condition, for those that may not be.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT clock.now, id, state, ready, available_at, owner, lease_until, finished_at
FROM {jobs}, clock
WHERE state NOT IN ('pending', 'running')
    OR state = 'running' AND (owner IS NULL OR lease_until IS NULL OR lease_until < clock.now)
    OR state = 'pending' AND ready AND available_at > clock.now
UNION ALL
SELECT clock.now, id, state, ready, available_at, owner, lease_until, finished_at
FROM {finished}, clock
WHERE finished_at IS NULL OR state NOT IN ('completed', 'failed', 'cancelled', 'expired');

-- name: living_tasks
-- How many jobs wait or run, by the task's name.
SELECT task, count(*) FROM {jobs} WHERE state IN ('pending', 'running') GROUP BY task;

-- name: append_events
-- Keep events, in order.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
INSERT INTO {events} (at, name, job_id, task, queue, facts)
SELECT clock.now, e.name, e.job_id, e.task, e.queue, e.facts
FROM clock, unnest(
    %(name)s::text[], %(job_id)s::text[], %(task)s::text[], %(queue)s::text[], %(facts)s::text[]
) WITH ORDINALITY AS e (name, job_id, task, queue, facts, place)
ORDER BY e.place;

-- name: read_events
-- Matching events after a place, in their order; a NULL list matches all. Only those of transactions
-- that no older one can still be followed by.
SELECT xid::text::bigint, number, at, name, job_id, task, queue, facts FROM {events}
WHERE (xid, number) > (%(xid)s::text::xid8, %(number)s::bigint)
    AND xid < pg_snapshot_xmin(pg_current_snapshot())
    AND (%(names)s::text[] IS NULL OR name = ANY(%(names)s::text[]))
    AND (%(tasks)s::text[] IS NULL OR task = ANY(%(tasks)s::text[]))
    AND (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[]))
ORDER BY xid, number LIMIT %(most)s::bigint;

-- name: read_events_of_jobs
-- The same for these jobs only.
SELECT xid::text::bigint, number, at, name, job_id, task, queue, facts FROM {events}
WHERE job_id = ANY(%(job_ids)s::text[]) AND job_id IS NOT NULL
    AND (xid, number) > (%(xid)s::text::xid8, %(number)s::bigint)
    AND xid < pg_snapshot_xmin(pg_current_snapshot())
    AND (%(names)s::text[] IS NULL OR name = ANY(%(names)s::text[]))
    AND (%(tasks)s::text[] IS NULL OR task = ANY(%(tasks)s::text[]))
    AND (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[]))
ORDER BY xid, number LIMIT %(most)s::bigint;

-- name: hidden_events
-- The last transaction with events that `read_events` does not give yet.
SELECT max(xid::text::bigint) FROM {events} WHERE xid >= pg_snapshot_xmin(pg_current_snapshot());

-- name: is_hidden
-- Whether `read_events` does not give the events of a transaction yet.
SELECT pg_snapshot_xmin(pg_current_snapshot()) <= %(xid)s::text::xid8;

-- name: prune_events
-- Remove those of the first events that were kept before an instant. However many there are, only
-- the first are looked at: their order is nearly that of their times.
WITH first AS MATERIALIZED (
    SELECT xid, number, at FROM {events} ORDER BY xid, number LIMIT %(most)s::bigint
)
DELETE FROM {events} AS e USING first
WHERE e.xid = first.xid AND e.number = first.number AND first.at < %(before)s::bigint
RETURNING e.number;

-- name: prune_jobs
-- Remove the first jobs that ended so before an instant; a NULL list matches all. Chosen once, up
-- front: as a part of the DELETE the choice may be made anew for every row, beyond its limit.
WITH doomed AS MATERIALIZED (
    SELECT first.id FROM unnest(%(states)s::text[]) AS s (state) CROSS JOIN LATERAL (
        SELECT id, finished_at FROM {finished}
        WHERE state = s.state AND finished_at < %(before)s::bigint
            AND (%(tasks)s::text[] IS NULL OR task = ANY(%(tasks)s::text[]))
            AND (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[]))
        ORDER BY finished_at, id LIMIT %(most)s::bigint
        FOR UPDATE SKIP LOCKED
    ) AS first
    ORDER BY first.finished_at, first.id LIMIT %(most)s::bigint
)
DELETE FROM {finished} AS ended USING doomed WHERE ended.id = doomed.id
RETURNING ended.state;

-- name: prune_jobs_of_ids
-- The same among these ids only.
WITH doomed AS MATERIALIZED (
    SELECT id FROM {finished}
    WHERE id = ANY(%(ids)s::text[]) AND finished_at + 0 < %(before)s::bigint
        AND (%(states)s::text[] IS NULL OR state = ANY(%(states)s::text[]))
        AND (%(tasks)s::text[] IS NULL OR task = ANY(%(tasks)s::text[]))
        AND (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[]))
    ORDER BY finished_at, id LIMIT %(most)s::bigint
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {finished} AS ended USING doomed WHERE ended.id = doomed.id
RETURNING ended.state;

-- name: begin_step
-- From here an operation in the caller's transaction can be undone.
SAVEPOINT tenure_step;

-- name: undo_step
-- Leave the caller's transaction as it was.
ROLLBACK TO SAVEPOINT tenure_step;

-- name: end_step
-- Make the operation a part of the caller's transaction.
RELEASE SAVEPOINT tenure_step;

-- name: tell
-- Wake whoever listens. A hint need not survive a crash, so nobody waits for the disk.
SELECT set_config('synchronous_commit', 'off', true), pg_notify(%(channel)s::text, message)
FROM unnest(%(messages)s::text[]) AS m (message);

-- name: adopt
-- Make a session ours, unless it may be another's in the next moment: whether it is ours. Plans are
-- made once and lead over indexes; statistics of an unlucky moment must not change them.
SELECT pg_backend_pid() = %(pid)s, CASE WHEN pg_backend_pid() = %(pid)s THEN (
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false),
    set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false),
    set_config('jit', 'off', false),
    set_config('statement_timeout', %(timeout)s::text, false),
    set_config('idle_in_transaction_session_timeout', %(timeout)s::text, false)
)::text END;

-- name: database
-- Which database this is, on whatever server and under whatever name it is reached.
SELECT (SELECT system_identifier FROM pg_control_system()),
    (SELECT oid FROM pg_database WHERE datname = current_database())::bigint;

-- name: lock_migration
-- Starters take turns; until the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended(%(channel)s::text, 0));

-- name: lock_patience
-- How long a migration waits for a table, until the transaction ends.
SELECT set_config('lock_timeout', %(milliseconds)s::text, true);

-- name: has_schema
-- Whether there is a schema of this name, and a schema of tenure in it.
SELECT
    EXISTS (SELECT FROM pg_namespace WHERE nspname = %(schema)s::text),
    EXISTS (
        SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = %(schema)s::text AND c.relname = %(table)s::text
    );

-- name: create_schema
-- Where the tables go.
CREATE SCHEMA {schema};

-- name: listen
-- Hear what is told from now on.
LISTEN {channel};

-- name: schema_version
-- What the schema is, and which libraries may use it.
SELECT version, min_library FROM {tenure_schema};

-- name: server
-- What the server is set to, and its time.
SELECT current_setting('server_version_num')::integer, current_setting('autovacuum'),
    current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), pg_is_in_recovery(),
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: open_transactions
-- Transactions of this database that are open for longer than a minute, the oldest first: for how many
-- seconds, whether they keep dead rows from being removed, and whether they wrote to jobs or locked
-- some.
SELECT a.pid, coalesce(a.usename, ''), coalesce(a.application_name, ''), coalesce(a.state, ''),
    extract(epoch FROM clock_timestamp() - a.xact_start)::bigint,
    a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL,
    EXISTS (
        SELECT FROM pg_locks l
        WHERE l.pid = a.pid AND l.granted AND l.relation = %(jobs)s::text::regclass
            AND l.mode IN ('RowShareLock', 'RowExclusiveLock')
    )
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.backend_type = 'client backend'
    AND a.xact_start < clock_timestamp() - interval '1 minute' AND a.pid <> pg_backend_pid()
ORDER BY a.xact_start;

-- name: prepared_transactions
-- Transactions that were prepared more than a minute ago, and neither committed nor rolled back.
SELECT gid FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < clock_timestamp() - interval '1 minute'
ORDER BY prepared;

-- name: table_health
-- Our large tables: their settings, and how many rows live and are dead.
SELECT c.relname, coalesce(array_to_string(c.reloptions, ' '), ''),
    coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0)
FROM pg_class c LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
WHERE c.oid = ANY(%(tables)s::text[]::regclass[]) ORDER BY c.relname;

-- name: index_health
-- The indexes of our tables, whether they work, and how many bytes they take for how many rows (-1
-- before the table was first vacuumed or analysed).
SELECT c.relname, i.indisvalid AND i.indisready, pg_relation_size(c.oid),
    CASE WHEN t.reltuples < 0 THEN -1 ELSE c.reltuples::bigint END
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
WHERE i.indrelid = ANY(%(tables)s::text[]::regclass[]) ORDER BY c.relname;

-- name: misplaced
-- Jobs that are in both tables, or in the wrong one.
SELECT j.id FROM {jobs} j
WHERE j.state NOT IN ('pending', 'running') OR EXISTS (
    SELECT FROM {finished} f WHERE f.id = j.id
)
UNION ALL
SELECT f.id FROM {finished} f WHERE f.state IN ('pending', 'running')
LIMIT 100;
