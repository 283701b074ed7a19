-- Rows as they are kept: a hash of the fields that scripts look at, one field `body` for all that
-- an insert fixed, and `result`. Body and result are msgpack that Lua only passes on. The names of
-- the fields (FIELDS, and their places STATE, LANE, ...) come from rows.py. Needs base, numbers.

local BODY, RESULT = #FIELDS + 1, #FIELDS + 2
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

local function rank_of(row)
  return row[RANK] or row[AT]
end

-- Take a job out of the indexes in which a row of these values stands.
local function leave(id, row)
  local lane, state = row[LANE], row[STATE]
  local queue = queue_of(lane)
  if state == "ready" then
    call("ZREM", PREFIX .. "ready:" .. lane, place(rank_of(row)) .. id)
    if call("EXISTS", PREFIX .. "ready:" .. lane) == 0 then
      call("SREM", PREFIX .. "lanes:" .. queue, lane)
    end
    call("ZREM", PREFIX .. "due:" .. queue, id)
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
  if state == "ready" then
    call("ZADD", PREFIX .. "ready:" .. lane, 0, place(rank_of(row)) .. id)
    call("SADD", PREFIX .. "lanes:" .. queue, lane)
    call("ZADD", PREFIX .. "due:" .. queue, row[AT], id)
  elseif state == "waiting" then
    local member = place(row[AT]) .. id
    call("ZADD", PREFIX .. "waiting:" .. lane, 0, member)
    call("ZADD", PREFIX .. "future:" .. queue, 0, member)
  elseif state == "running" then
    call("ZADD", PREFIX .. "leases:" .. lane, row[LEASE], id)
    call("SADD", PREFIX .. "busy:" .. queue, lane)
    call("SADD", PREFIX .. "held:" .. row[OWNER], id)
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
