-- Insert new jobs, all or none, unless what `core` has to decide is met.
-- include: numbers base signals rows limits
--
-- KEYS[1], ARGV[1]: see base.
-- ARGV[2]: {jobs, blind}. Each job is {id, queue, task, priority, delay, run_at, expires_in,
--   expires_at, unique_key, unique_until, schedule, tick, concurrency_key, rate_key, fair_key, body};
--   what is not given is false.
--   `blind`: nobody can decide, since this is one command of a transaction; so where a key or a
--   tick is taken, its job stays as it is and nothing is inserted. Only an overdue job that has the
--   key is expired before, as tenure.core.rules.expired_values says.
-- Answers {now, what, text}: what is
--   "done": text has "1" for each job that was created and "0" for each that was there already;
--   "late": the job of this number has a time past the calendar; nothing was written;
--   "plan": a key or a tick is taken, or in the batch twice; nothing was written.
--
-- Safe to repeat: a job that is there is left as it is.

local now = clock()
local now_text = text(now)
local jobs, blind = unpack(cmsgpack.unpack(ARGV[2]), 1, 2)
local seen, overdue = {}, {}

local function answer(what, more)
  return cmsgpack.pack({now_text, what, more})
end

local function is_late(instant)
  return not is_small(instant) and is_less(LAST_INSTANT, instant)
end

-- Whether a key or tick is new to the store and to the batch.
local function is_free(name, ...)
  if seen[name] then
    return false
  end
  seen[name] = true
  for _, hash in ipairs({...}) do
    if call("HEXISTS", PREFIX .. hash, string.sub(name, 3)) == 1 then
      return false
    end
  end
  return true
end

-- Whether a key is free but for a job that may no longer start; that one is noted.
local function is_left(key)
  if call("HEXISTS", PREFIX .. "forever", key) == 1 then
    return false
  end
  local id = call("HGET", PREFIX .. "unique", key)
  local row = id and load(id)
  if not row or row[STATE] == "running" or not row[UNTIL] or is_less(now_text, row[UNTIL]) then
    return false
  end
  overdue[id] = row
  return true
end

-- First: look at everything. `rows` has what is to be written, false for a job that is there.
local rows, flags, ids, turns = {}, {}, {}, {}
for i = 1, #jobs do
  local id, queue, task, priority, delay, run_at, expires_in, expires_at, key, keep, sched, tick =
    unpack(jobs[i], 1, 12)
  local slot, pace, fair, body = unpack(jobs[i], 13, 16)
  local known = ids[id] or call("EXISTS", job_key(id)) == 1
  ids[id] = true
  rows[i], flags[i] = false, "0"
  if not known then
    local at, late = now_text, false
    if run_at then
      if is_less(now_text, run_at) then
        at = run_at
      end
    elseif delay then
      at = sum(now_text, delay)
    end
    if expires_in then
      expires_at = sum(now_text, expires_in)
    end
    if is_late(at) or (expires_at and is_late(expires_at)) then
      return answer("late", text(i - 1))
    end
    local row = {}
    row[STATE] = (at == now_text or not is_less(now_text, at)) and "ready" or "waiting"
    row[LANE] = lane_of(queue, task)
    row[AT], row[MADE], row[UNTIL] = at, now_text, expires_at
    if priority then
      row[PRI] = priority
      row[RANK] = sum(at, text(-tonumber(priority) * RANK_STEP))
    end
    row[KEY], row[KEEP], row[SCHED], row[TICK] = key, keep, sched, tick
    row[CKEY], row[RKEY], row[FKEY], row[BODY] = slot, pace, fair, body
    local met = key and seen["k:" .. key]
    local free = (not key or is_free("k:" .. key, "unique", "forever")
      or (blind and not met and is_left(key)))
      and (not tick_name(row) or is_free("t:" .. tick_name(row), "ticks"))
    if not free and not blind then
      return answer("plan", false)
    end
    if free then
      if fair and row[STATE] == "ready" then
        local name = turns_key(row)
        turns[name] = take_turn(row, turns[name] or last_turn(row))
      end
      rows[i], flags[i] = row, "1"
    end
  end
end

-- Then: write. The first write is one that the server refuses when memory has run out.
local expired, freed = {}, {}
for id, row in pairs(overdue) do
  call("HSET", job_key(id), "state", "expired", "ended", now_text)
  expire_row(id, row, now_text, freed)
  expired[#expired + 1] = id
end
tell("done", expired)
local ready, lanes, due, queues, counts, all = {}, {}, {}, {}, {}, {}
for i = 1, #jobs do
  local row, id = rows[i], jobs[i][1]
  if row then
    local lane = row[LANE]
    local queue = jobs[i][2]
    write(id, row)
    all[#all + 1] = 0
    all[#all + 1] = id
    if not counts[queue] then
      counts[queue], lanes[queue], due[queue] = 0, {}, {}
      queues[#queues + 1] = queue
    end
    counts[queue] = counts[queue] + 1
    if row[STATE] == "ready" then
      if not ready[lane] then
        ready[lane] = {}
        lanes[queue][#lanes[queue] + 1] = lane
      end
      local members, times = ready[lane], due[queue]
      members[#members + 1] = 0
      members[#members + 1] = place(rank_of(row)) .. id
      times[#times + 1] = row[AT]
      times[#times + 1] = id
      if row[FKEY] then
        call("ZADD", turns_key(row), 0, members[#members])
      end
      if row[UNTIL] then
        call("ZADD", PREFIX .. "overdue:" .. queue, 0, place(row[UNTIL]) .. id)
      end
      if row[KEY] then
        call("HSET", PREFIX .. "unique", row[KEY], id)
      end
      if row[SCHED] then
        call("SADD", PREFIX .. "living:" .. row[SCHED], id)
      end
    else
      enter(id, row)
    end
    if row[KEY] and row[KEEP] == "forever" then
      call("HSET", PREFIX .. "forever", row[KEY], now_text .. ":" .. id)
    end
    if tick_name(row) then
      call("HSET", PREFIX .. "ticks", tick_name(row), id)
    end
  end
end
for lane, members in pairs(ready) do
  in_chunks("ZADD", PREFIX .. "ready:" .. lane, members, 2)
end
for queue, names in pairs(lanes) do
  in_chunks("SADD", PREFIX .. "lanes:" .. queue, names)
  in_chunks("ZADD", PREFIX .. "due:" .. queue, due[queue], 2)
end
in_chunks("ZADD", PREFIX .. "ids", all, 2)
in_chunks("SADD", PREFIX .. "queues", queues)
pass_on(freed, counts)
wake_all(counts, now)
return answer("done", table.concat(flags))
