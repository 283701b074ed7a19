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

local function settled(id, token, owner, next, if_cancelled)
  local job = job_key(id)
  local state, lane, has_token, has_owner, stop, key, sched, slot = unpack(
    call("HMGET", job, "state", "lane", "token", "owner", "stop", "key", "sched", "ckey"), 1, 8
  )
  if not state then
    return {"lost", false, 0}
  end
  if (has_token or "0") ~= token or (has_owner or "") ~= owner then
    return {"lost", shown(state), 0}
  end
  if state ~= "running" then
    return {"already", shown(state), 0}
  end
  local branch, number = next, 1
  if stop and if_cancelled then
    branch, number = if_cancelled, 2
  end
  if not wrote then
    begin_writing()
    wrote = true
  end
  local queue = queue_of(lane)
  local fields = branch[4]
  local held = slot and {[LANE] = lane, [CKEY] = slot}
  if held then
    note_freed(freed, held)
  end
  left[queue] = (left[queue] or 0) + 1
  if branch[1] == "pending" then
    local row = call("HMGET", job, unpack(FIELDS))
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
      call("HDEL", job, "rank")
    end
    fields[#fields + 1], fields[#fields + 2] = "state", row[STATE]
    fields[#fields + 1], fields[#fields + 2] = "at", at
    call("HDEL", job, "lease", "result")
    call("HSET", job, unpack(fields))
    enter(id, row)
    woken[queue] = (woken[queue] or 0) + 1
    return {"applied", "pending", number}
  end
  fields[#fields + 1], fields[#fields + 2] = "state", branch[1]
  fields[#fields + 1], fields[#fields + 2] = "ended", now_text
  if branch[3] then
    fields[#fields + 1], fields[#fields + 2] = "result", branch[3]
  end
  call("HSET", job, unpack(fields))
  append(out, "leases:" .. lane, id)
  append(done, "done:" .. branch[1] .. ":" .. queue, now_text, id)
  append(ended, owner, id)
  if held then
    call("SREM", slots_key(held), id)
  end
  if key and call("HGET", PREFIX .. "unique", key) == id then
    call("HDEL", PREFIX .. "unique", key)
  end
  if sched then
    call("SREM", PREFIX .. "living:" .. sched, id)
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
