-- Limits of queues and of keys: slots, rates, and who goes on. What is calculated here is said by
-- tenure.core.limits, whose numbers come with the limits of a queue. Needs base, numbers, rows.

-- How a queue is treated that is not as any other; nil if it is. See limiting.py.
local function special(queue)
  local kept = call("HGET", PREFIX .. "special", queue)
  return kept and cjson.decode(kept) or nil
end

-- What only limited queues need; made when it is needed, as most calls do not.
local function make_flow()
  -- How many jobs of a queue run.
  local function running_in(queue)
    local count = 0
    for _, lane in ipairs(call("SMEMBERS", PREFIX .. "busy:" .. queue)) do
      count = count + call("ZCARD", PREFIX .. "leases:" .. lane)
    end
    return count
  end

  -- What is kept of a rate: {arrival, wake}, either of them nil.
  local function cell_of(queue, key)
    local kept = call("HGET", PREFIX .. "rates:" .. queue, key)
    if not kept then
      return {}
    end
    local blank = string.find(kept, " ", 1, true)
    if blank then
      return {arrival = string.sub(kept, 1, blank - 1), wake = string.sub(kept, blank + 1)}
    end
    return {arrival = kept}
  end

  -- Keep a cell, in place of what was kept: in the order in which it is looked at again, or
  -- forgotten.
  local function keep_cell(queue, key, before, arrival, wake)
    local wakes, spent = PREFIX .. "wakes:" .. queue, PREFIX .. "spent:" .. queue
    if before.wake then
      call("ZREM", wakes, place(before.wake) .. key)
    elseif before.arrival then
      call("ZREM", spent, place(before.arrival) .. key)
    end
    if wake then
      call("ZADD", wakes, 0, place(wake) .. key)
    else
      call("ZADD", spent, 0, place(arrival) .. key)
    end
    call("HSET", PREFIX .. "rates:" .. queue, key, wake and arrival .. " " .. wake or arrival)
    call("SADD", PREFIX .. "paced", queue)
  end

  -- The arrival time of a rate, from now on: see _bounded.
  local function from_now(rate, arrival, now_text)
    if not arrival or is_less(arrival, now_text)
      or is_less(sum(now_text, rate.horizon), arrival) then
      return now_text
    end
    return arrival
  end

  -- How many may start now, `most` at most, and the arrival time after that: see allowed and spent.
  local function starts(rate, arrival, now_text, most)
    local count, at, last = 0, from_now(rate, arrival, now_text), sum(now_text, rate.ahead)
    while count < most and not is_less(last, at) do
      count, at = count + 1, sum(at, rate.interval)
    end
    return count, at
  end

  -- When one more may start: see next_start.
  local function next_start(rate, arrival, now_text)
    local at = sum(from_now(rate, arrival, now_text), "-" .. rate.ahead)
    return is_less(at, now_text) and now_text or at
  end

  -- Make a blocked job ready.
  local function unblock(id, unblocked)
    local row = call("HMGET", job_key(id), unpack(FIELDS))
    lines().let_go(id, row)
    row[STATE] = "ready"
    call("HSET", job_key(id), "state", "ready")
    line_up(id, row)
    local queue = queue_of(row[LANE])
    unblocked[queue] = (unblocked[queue] or 0) + 1
  end

  -- Make the first blocked jobs of a key ready, so many of each lane; whether any stay blocked.
  local function unblock_first(reason, queue, key, count, unblocked)
    local lanes = call("SMEMBERS", lines().lines_key(reason, queue, key))
    for _, lane in ipairs(count > 0 and lanes or {}) do
      for _, member in ipairs(call("ZRANGE", lines().line_key(reason, lane, key), 0, count - 1)) do
        unblock(string.sub(member, 9), unblocked)
      end
    end
    return call("EXISTS", lines().lines_key(reason, queue, key)) == 1
  end

  return {
    running_in = running_in, cell_of = cell_of, keep_cell = keep_cell, from_now = from_now,
    starts = starts, next_start = next_start, unblock = unblock, unblock_first = unblock_first,
  }
end

local flow_made

local function flow()
  flow_made = flow_made or make_flow()
  return flow_made
end

-- Note that a job, as it was, leaves a slot of its key to the next ones.
local function note_freed(freed, row)
  if row[CKEY] then
    local queue = queue_of(row[LANE])
    local name = lane_of(queue, row[CKEY])
    freed[name] = freed[name] or {queue, row[CKEY], 0}
    freed[name][3] = freed[name][3] + 1
  end
end

-- Give freed slots, {queue, key, how many} each, to the next ones that wait for them; `woken` counts
-- who became ready.
local function pass_on(freed, woken)
  for _, slot in pairs(freed) do
    flow().unblock_first("concurrency", slot[1], slot[2], slot[3], woken)
  end
end

-- Tell who waits for room, of jobs that ended: of limited queues, {queue = how many}.
local function note_left(left, woken)
  for queue, count in pairs(left) do
    local given = special(queue)
    if given and given.limited then
      -- Which task is next is unknown; so if there are several, everybody is told.
      local several = call("SCARD", PREFIX .. "lanes:" .. queue) > 1
      woken[queue] = (woken[queue] or 0) + (several and 2 or count)
    end
  end
end

-- End a pending job that may no longer start: see tenure.core.rules.expired_values.
local function expire_row(id, row, now_text, freed)
  if row[STATE] == "ready" then
    note_freed(freed, row)
  end
  leave(id, row)
  row[STATE], row[ENDED] = "expired", now_text
  call("HSET", job_key(id), "state", "expired", "ended", now_text)
  enter(id, row)
end
