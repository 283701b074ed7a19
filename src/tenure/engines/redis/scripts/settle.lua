-- End attempts, each if its token and owner are those of a running job.
-- include: numbers base signals rows limits
--
-- KEYS[1], ARGV[1]: see base.
-- ARGV[2]: a list of {id, token, owner, next, if_cancelled}. A branch is {state, delay, result,
--   fields}: `delay` in microseconds, for the state "pending"; `result` a msgpack value or false;
--   `fields` what else is written, as {name, value, ...}. `if_cancelled` false: the same as `next`.
-- Answers {now, {{verdict, state, branch}, ...}}: the branch that was taken, 1 or 2.
--
-- Safe to repeat: what was settled under this token is answered with `already`.

local now = clock()
local now_text = text(now)
local out, done, answers, woken, ended, wrote = {}, {}, {}, {}, {}, false
local freed, left = {}, {}

local function append(lists, key, ...)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  for _, value in ipairs({...}) do
    list[#list + 1] = value
  end
end

local function settled(id, token, owner, next, if_cancelled)
  local row = call("HMGET", job_key(id), unpack(FIELDS))
  local state = row[STATE]
  if not state then
    return {"lost", false, 0}
  end
  if (row[TOKEN] or "0") ~= token or (row[OWNER] or "") ~= owner then
    return {"lost", shown(state), 0}
  end
  if state ~= "running" then
    return {"already", shown(state), 0}
  end
  local branch, number = next, 1
  if row[STOP] and if_cancelled then
    branch, number = if_cancelled, 2
  end
  if not wrote then
    begin_writing()
    wrote = true
  end
  local lane = row[LANE]
  local queue = queue_of(lane)
  local fields = branch[4]
  note_freed(freed, row)
  left[queue] = (left[queue] or 0) + 1
  if branch[1] == "pending" then
    leave(id, row)
    local at = sum(now_text, branch[2])
    if is_less(LAST_INSTANT, at) then
      at = LAST_INSTANT
    end
    row[STATE] = branch[2] == "0" and "ready" or "waiting"
    row[AT] = at
    if row[PRI] then
      row[RANK] = sum(at, text(-tonumber(row[PRI]) * RANK_STEP))
      fields[#fields + 1], fields[#fields + 2] = "rank", row[RANK]
    elseif row[RANK] then
      row[RANK] = false  -- its turn is over
      call("HDEL", job_key(id), "rank")
    end
    fields[#fields + 1], fields[#fields + 2] = "state", row[STATE]
    fields[#fields + 1], fields[#fields + 2] = "at", at
    call("HDEL", job_key(id), "lease", "result")
    call("HSET", job_key(id), unpack(fields))
    enter(id, row)
    woken[queue] = (woken[queue] or 0) + 1
    return {"applied", "pending", number}
  end
  fields[#fields + 1], fields[#fields + 2] = "state", branch[1]
  fields[#fields + 1], fields[#fields + 2] = "ended", now_text
  if branch[3] then
    fields[#fields + 1], fields[#fields + 2] = "result", branch[3]
  end
  call("HSET", job_key(id), unpack(fields))
  append(out, "leases:" .. lane, id)
  append(done, "done:" .. branch[1] .. ":" .. queue, now_text, id)
  append(ended, row[OWNER], id)
  if row[CKEY] then
    call("SREM", slots_key(row), id)
  end
  if row[KEY] and call("HGET", PREFIX .. "unique", row[KEY]) == id then
    call("HDEL", PREFIX .. "unique", row[KEY])
  end
  if row[SCHED] then
    call("SREM", PREFIX .. "living:" .. row[SCHED], id)
  end
  return {"applied", branch[1], number}
end

for i, item in ipairs(cmsgpack.unpack(ARGV[2])) do
  answers[i] = settled(unpack(item, 1, 5))
end
for key, members in pairs(out) do
  in_chunks("ZREM", PREFIX .. key, members)
  if call("EXISTS", PREFIX .. key) == 0 then
    local lane = string.sub(key, 8)
    call("SREM", PREFIX .. "busy:" .. queue_of(lane), lane)
  end
end
for key, members in pairs(done) do
  in_chunks("ZADD", PREFIX .. key, members, 2)
end
for owner, ids in pairs(ended) do
  in_chunks("SREM", PREFIX .. "held:" .. owner, ids)
  tell("done", ids)
end
pass_on(freed, woken)
note_left(left, woken)
wake_all(woken, now)
return cmsgpack.pack({now_text, answers})
