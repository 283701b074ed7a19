-- Rows as they are kept: a hash of the fields that scripts look at, one field `body` for all that
-- an insert fixed, and `result`. Body and result are msgpack that Lua only passes on. The names of
-- the fields (FIELDS, and their places STATE, LANE, ...) come from rows.py, as scripts.py writes
-- them into the text. Needs base, numbers.

local places, nothing  -- made when a row is read: not every call does

local function job_key(id)
  return PREFIX .. "job:" .. id
end

-- The row's values, by place; nil if there is none.
local function load(id)
  local found = call("HGETALL", job_key(id))
  if #found == 0 then
    return nil
  end
  if not places then
    places, nothing = {body = BODY, result = RESULT}, {}
    for i = 1, #FIELDS do
      places[FIELDS[i]] = i
    end
    for i = 1, RESULT do
      nothing[i] = false
    end
  end
  local row = {unpack(nothing)}
  for i = 1, #found, 2 do
    local at = places[found[i]]
    if at then  -- else it is of a newer version
      row[at] = found[i + 1]
    end
  end
  return row
end

-- A row as part of an answer; spoils it.
local function packed(id, row)
  local body, result = row[BODY], row[RESULT] or "\192"
  row[BODY], row[RESULT] = nil, nil
  return "\148" .. cmsgpack.pack(id) .. cmsgpack.pack(row) .. body .. result
end

local FINAL = {completed = true, failed = true, cancelled = true, expired = true}

-- The states of a job that a limit holds back, and the field whose key it waits for.
local BLOCKED = {concurrency = CKEY, rate = RKEY}

-- The state that is told of what is kept.
local function shown(state)
  return (state == "ready" or state == "waiting" or BLOCKED[state]) and "pending" or state
end

local function rank_of(row)
  return row[RANK] or row[AT]
end

-- The running jobs of the same concurrency key.
local function slots_key(row)
  return PREFIX .. "slots:" .. lane_of(queue_of(row[LANE]), row[CKEY])
end

-- The jobs that take turns with this one, and are due and wait.
local function turns_key(row)
  return PREFIX .. "turns:" .. (row[PRI] or "0") .. ":" .. lane_of(queue_of(row[LANE]), row[FKEY])
end

-- Let a job stand among those that may be claimed.
local function line_up(id, row)
  call("ZADD", PREFIX .. "ready:" .. row[LANE], 0, place(rank_of(row)) .. id)
  call("SADD", PREFIX .. "lanes:" .. queue_of(row[LANE]), row[LANE])
end

local function step_out(id, row)
  local ready = PREFIX .. "ready:" .. row[LANE]
  call("ZREM", ready, place(rank_of(row)) .. id)
  if call("EXISTS", ready) == 0 then
    call("SREM", PREFIX .. "lanes:" .. queue_of(row[LANE]), row[LANE])
  end
end

-- How blocked jobs stand in line; made when it is needed, as most calls do not.
local function make_lines()
  -- The blocked jobs of one lane and key.
  local function line_key(reason, lane, key)
    return PREFIX .. "line:" .. reason .. ":" .. lane_of(lane, key)
  end

  -- The lanes that have blocked jobs of a key.
  local function lines_key(reason, queue, key)
    return PREFIX .. "lines:" .. reason .. ":" .. lane_of(queue, key)
  end

  -- Let a job stand among those that its state, a reason of BLOCKED, holds back.
  local function hold_back(id, row)
    local reason, lane, queue = row[STATE], row[LANE], queue_of(row[LANE])
    local key = row[BLOCKED[reason]]
    call("ZADD", line_key(reason, lane, key), 0, place(rank_of(row)) .. id)
    call("SADD", lines_key(reason, queue, key), lane)
    call("ZADD", PREFIX .. "blocked:" .. queue, 0, id)
  end

  local function let_go(id, row)
    local reason, lane, queue = row[STATE], row[LANE], queue_of(row[LANE])
    local key = row[BLOCKED[reason]]
    local line = line_key(reason, lane, key)
    call("ZREM", line, place(rank_of(row)) .. id)
    if call("EXISTS", line) == 0 then
      call("SREM", lines_key(reason, queue, key), lane)
    end
    call("ZREM", PREFIX .. "blocked:" .. queue, id)
  end

  return {line_key = line_key, lines_key = lines_key, hold_back = hold_back, let_go = let_go}
end

local lines_made

local function lines()
  lines_made = lines_made or make_lines()
  return lines_made
end

-- Take a job out of the indexes in which a row of these values stands.
local function leave(id, row)
  local lane, state = row[LANE], row[STATE]
  local queue = queue_of(lane)
  if state == "ready" or BLOCKED[state] then
    if state == "ready" then
      step_out(id, row)
    else
      lines().let_go(id, row)
    end
    call("ZREM", PREFIX .. "due:" .. queue, id)
    if row[FKEY] then
      call("ZREM", turns_key(row), place(rank_of(row)) .. id)
    end
  elseif state == "waiting" then
    local member = place(row[AT]) .. id
    call("ZREM", PREFIX .. "waiting:" .. lane, member)
    call("ZREM", PREFIX .. "future:" .. queue, member)
  elseif state == "running" then
    call("ZREM", PREFIX .. "leases:" .. lane, id)
    if call("EXISTS", PREFIX .. "leases:" .. lane) == 0 then
      call("SREM", PREFIX .. "busy:" .. queue, lane)
    end
    if row[OWNER] then
      call("SREM", PREFIX .. "held:" .. row[OWNER], id)
    end
    if row[CKEY] then
      call("SREM", slots_key(row), id)
    end
  else
    call("ZREM", PREFIX .. "done:" .. state .. ":" .. queue, id)
    return
  end
  if row[UNTIL] and state ~= "running" then
    call("ZREM", PREFIX .. "overdue:" .. queue, place(row[UNTIL]) .. id)
  end
  if row[KEY] and call("HGET", PREFIX .. "unique", row[KEY]) == id then
    call("HDEL", PREFIX .. "unique", row[KEY])
  end
  if row[SCHED] then
    call("SREM", PREFIX .. "living:" .. row[SCHED], id)
  end
end

-- Put a job into the indexes that a row of these values calls for.
local function enter(id, row)
  local lane, state = row[LANE], row[STATE]
  local queue = queue_of(lane)
  if state == "ready" or BLOCKED[state] then
    if state == "ready" then
      line_up(id, row)
    else
      lines().hold_back(id, row)
    end
    call("ZADD", PREFIX .. "due:" .. queue, row[AT], id)
    if row[FKEY] then
      call("ZADD", turns_key(row), 0, place(rank_of(row)) .. id)
    end
  elseif state == "waiting" then
    local member = place(row[AT]) .. id
    call("ZADD", PREFIX .. "waiting:" .. lane, 0, member)
    call("ZADD", PREFIX .. "future:" .. queue, 0, member)
  elseif state == "running" then
    call("ZADD", PREFIX .. "leases:" .. lane, row[LEASE], id)
    call("SADD", PREFIX .. "busy:" .. queue, lane)
    call("SADD", PREFIX .. "held:" .. row[OWNER], id)
    if row[CKEY] then
      call("SADD", slots_key(row), id)
    end
  else
    call("ZADD", PREFIX .. "done:" .. state .. ":" .. queue, row[ENDED], id)
    return
  end
  if row[UNTIL] and state ~= "running" then
    call("ZADD", PREFIX .. "overdue:" .. queue, 0, place(row[UNTIL]) .. id)
  end
  if row[KEY] then
    call("HSET", PREFIX .. "unique", row[KEY], id)
  end
  if row[SCHED] then
    call("SADD", PREFIX .. "living:" .. row[SCHED], id)
  end
end

-- The highest rank of those that take turns with a job; nil if there is none.
local function last_turn(row)
  local last = call("ZREVRANGE", turns_key(row), 0, 0)[1]
  if last then
    local found = call("HMGET", job_key(string.sub(last, 9)), "rank", "at")
    return found[1] or found[2]
  end
end

-- Rank a job that becomes due by its turn, behind the rank `last`, if there is one: see
-- tenure.core.fair.Turns.
local function take_turn(row, last)
  local rank = sum(row[AT], text(-(tonumber(row[PRI]) or 0) * RANK_STEP))
  local behind = last and sum(last, text(RANK_STEP))
  if behind and is_less(rank, behind) then
    rank = behind
  end
  row[RANK] = rank ~= row[AT] and rank or false
  return rank
end

-- The name under which the job of a tick is kept.
local function tick_name(row)
  return row[SCHED] and row[TICK] and (row[TICK] .. ":" .. row[SCHED])
end

-- Write a whole row, given by place; what is false is left out.
local function write(id, row)
  local values, n = {}, 0
  for i = 1, RESULT do
    if row[i] then
      values[n + 1], values[n + 2] = FIELDS[i] or (i == BODY and "body" or "result"), row[i]
      n = n + 2
    end
  end
  call("HSET", job_key(id), unpack(values))
end
