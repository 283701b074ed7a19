-- Take jobs, each under a new token and lease.
-- include: numbers base signals rows limits merge gate
--
-- KEYS[1], ARGV[1]: see base.
-- ARGV[2]: {owner, lease, limit, queues, tasks, ids, room, held, arms, ear, back}: `lease` in microseconds;
--   `tasks` and `ids` false for any; `room` {queue = how many}; `held` the ids that the owner knows
--   of, or false; `arms` {name = true}; `ear` the name under which the claimer hears, or "".
-- Answers {now, rows, others}: see rows.packed. `others` are jobs whose lease ran out, which hold
--   slots of limited queues, and which this claim may not have: {row, digest} each. If there are any,
--   nothing was done. The claim is to be made again, without the arm `slots`, which looks for them, and
--   with `back`: {id, values by place, body, result, digest} each, which is written where the row is
--   still the one of the digest.
--
-- Not to be repeated when the answer was lost: the resume arm of the next claim gives the jobs.
-- What each arm writes is said by tenure.core.rules: promoted_values, expired_values,
-- resumed_values, claimed_values.

local now = clock()
local now_text = text(now)
local owner, lease, limit, queues, tasks, ids, room, held, arms, ear, back =
  unpack(cmsgpack.unpack(ARGV[2]), 1, 11)
local lease_until = text(now + lease)
local left = limit
local woken, ended, bereft, answers, freed = {}, {}, {}, {}, {}

-- Redis has no command for "the first of many sets", so arms look into one set for each queue.
local function per_queue(name, last)
  local sources = {}
  for i = 1, #queues do
    sources[i] = by_place(PREFIX .. name .. ":" .. queues[i], last)
  end
  return sources
end

local function first_of(sources, count)
  local found = {}
  if count > 0 then
    merge(sources, count, function(member)
      found[#found + 1] = string.sub(member, 9)
      return #found == count and "stop"
    end)
  end
  return found
end

local promoted = {}

local function promote()
  local found = first_of(per_queue("future", now_text), limit)
  if #found > 0 then
    begin_writing()
  end
  for _, id in ipairs(found) do
    local row = load(id)
    leave(id, row)
    row[STATE] = "ready"
    if row[FKEY] then
      call("HSET", job_key(id), "state", "ready", "rank", take_turn(row, last_turn(row)))
    else
      call("HSET", job_key(id), "state", "ready")
    end
    enter(id, row)
    promoted[id] = queue_of(row[LANE])
  end
end

local function expire()
  local found = first_of(per_queue("overdue", now_text), limit)
  if #found > 0 then
    begin_writing()
  end
  for _, id in ipairs(found) do
    expire_row(id, load(id), now_text, freed)
    ended[#ended + 1] = id
  end
end

local function resume()
  local known, found = set(held), {}
  for _, id in ipairs(call("SMEMBERS", PREFIX .. "held:" .. owner)) do
    if not known[id] then
      found[#found + 1] = {id = id, row = load(id)}
    end
  end
  table.sort(found, function(one, other)
    local a, b = tonumber(one.row[LEASE]), tonumber(other.row[LEASE])
    if a ~= b then
      return a < b
    end
    return is_before(one.id, other.id)
  end)
  for i = 1, math.min(#found, left) do
    local id, row = found[i].id, found[i].row
    if i == 1 then
      begin_writing()
    end
    row[LEASE] = lease_until
    call("HSET", job_key(id), "lease", lease_until)
    call("ZADD", PREFIX .. "leases:" .. row[LANE], lease_until, id)
    answers[#answers + 1] = packed(id, row)
  end
  left = left - math.min(#found, left)
end

-- Whether the claim may have one more of a queue, if it also `fits`; then it is counted.
local function has_room(queue, fits)
  local rest = room[queue]
  if (rest and rest <= 0) or (fits and not fits()) then
    return false
  end
  room[queue] = rest and rest - 1
  return true
end

local chosen_tasks = tasks and set(tasks)
local moving, limited, gates = {}, {}, nil
for _, queue in ipairs(queues) do
  local given = special(queue)
  if given and given.limited then
    limited[queue] = given
    gates = gates or make_gate(flow())
  end
  if not (given and given.paused) then
    moving[#moving + 1] = queue
  end
end

-- The lanes of these queues and tasks that hold something, by a set that names those that do.
local function lanes_in(name)
  local found = {}
  for _, queue in ipairs(moving) do
    local key = PREFIX .. name .. ":" .. queue
    if not tasks then
      for _, lane in ipairs(call("SMEMBERS", key)) do
        found[#found + 1] = lane
      end
    elseif #tasks == 1 then
      found[#found + 1] = lane_of(queue, tasks[1])
    elseif #tasks > 0 and call("EXISTS", key) == 1 then
      for first = 1, #tasks, 1000 do
        local part = {}
        for i = first, math.min(first + 999, #tasks) do
          part[#part + 1] = lane_of(queue, tasks[i])
        end
        for i, there in ipairs(call("SMISMEMBER", key, unpack(part))) do
          if there == 1 then
            found[#found + 1] = part[i]
          end
        end
      end
    end
  end
  return found
end

-- Of the jobs that the claim names, those in `state`: a source as of a sorted set.
local function named(state)
  local of_queue, list = set(moving), {}
  for id in pairs(set(ids)) do
    local row = load(id)
    if row and row[STATE] == state then
      local queue = queue_of(row[LANE])
      local task = string.sub(row[LANE], #tostring(#queue) + #queue + 2)
      if of_queue[queue] and (not chosen_tasks or chosen_tasks[task]) then
        local digits = state == "running" and row[LEASE] or rank_of(row)
        if state ~= "running" or not is_less(now_text, digits) then
          list[#list + 1] = place(digits) .. id
        end
      end
    end
  end
  table.sort(list, is_before)
  return source(function(offset, count)
    return {unpack(list, offset + 1, math.min(offset + count, #list))}
  end)
end

-- Per key of a sorted set: what is to be taken out, and what is to be put in.
local out, into, taken = {}, {}, {}

-- A token greater than the last one, and not less than the time.
local function next_token(last)
  local token = last and sum(last, "1") or "1"
  return is_less(token, now_text) and now_text or token
end

-- Give a job to the owner.
local function take(id, row, member)
  local queue, lane = queue_of(row[LANE]), row[LANE]
  if row[STATE] == "running" then
    row[LAPSES] = text((tonumber(row[LAPSES]) or 0) + 1)
    bereft[#bereft + 1] = id
    call("SREM", PREFIX .. "held:" .. row[OWNER], id)
    call("HSET", job_key(id), "lapses", row[LAPSES])
  else
    append(out, "ready:" .. lane, member)
    append(out, "due:" .. queue, id)
    if row[UNTIL] then
      call("ZREM", PREFIX .. "overdue:" .. queue, place(row[UNTIL]) .. id)
    end
    if row[FKEY] then
      call("ZREM", turns_key(row), member)
    end
    if row[CKEY] then
      call("SADD", slots_key(row), id)
    end
  end
  if row[KEEP] == "started" then
    call("HDEL", PREFIX .. "unique", row[KEY])
    call("HDEL", job_key(id), "key", "keep")
    row[KEY], row[KEEP] = false, false
  end
  row[TOKEN] = next_token(row[TOKEN])
  row[CLAIMS] = row[CLAIMS] and text(tonumber(row[CLAIMS]) + 1) or "1"
  row[STATE], row[OWNER], row[LEASE], row[BEGAN] = "running", owner, lease_until, now_text
  call(
    "HSET", job_key(id), "state", "running", "token", row[TOKEN], "owner", owner,
    "lease", lease_until, "claims", row[CLAIMS], "began", now_text
  )
  append(into, lane, lease_until, id)
  taken[#taken + 1] = id
  promoted[id] = nil
  answers[#answers + 1] = packed(id, row)
  left = left - 1
end

-- How many jobs that may no longer start one claim passes over.
local REACH = 1000

local function take_from(sources, in_places, gate)
  local found, passed = {}, 0
  if left <= 0 then
    return
  end
  local chunk = math.max(8, math.min(left, math.ceil(2 * left / math.max(#sources, 1))))
  merge(sources, chunk, function(member, from)
    if from.queue and (room[from.queue] or 1) <= 0 then
      return "leave"
    end
    if gate and gate.closed then
      return "stop"
    end
    local id = in_places and string.sub(member, 9) or member
    local row = load(id)
    local queue = queue_of(row[LANE])
    if row[STATE] == "ready" and row[UNTIL] and not is_less(now_text, row[UNTIL]) then
      passed = passed + 1
      return passed == REACH and "stop"
    end
    local given = gate and limited[queue]
    if has_room(queue, given and function() return gate.admit(id, row, given) end) then
      found[#found + 1] = {id, row, member}
    end
    return #found == left and "stop"
  end)
  for i, one in ipairs(found) do
    if i == 1 then
      begin_writing()
    end
    take(unpack(one))
  end
end

local function lapsed()
  if ids then
    return take_from({named("running")}, true)
  end
  local sources = {}
  for _, lane in ipairs(lanes_in("busy")) do
    sources[#sources + 1] = by_score(PREFIX .. "leases:" .. lane, now_text)
    sources[#sources].queue = queue_of(lane)
  end
  take_from(sources, false)
end

local function due()
  local gate = gates and gates.new(now_text)
  for _, queue in ipairs(gate and moving or {}) do
    if limited[queue] then
      local most = gates.room_of(queue, limited[queue], now_text, left)
      room[queue] = math.min(most, room[queue] or most)
    end
  end
  local sources = {}
  if ids then
    sources[1] = named("ready")
  else
    for _, lane in ipairs(lanes_in("lanes")) do
      sources[#sources + 1] = by_place(PREFIX .. "ready:" .. lane)
      sources[#sources].queue = queue_of(lane)
    end
  end
  take_from(sources, true, gate)
  if gate then
    gate.close(limited, freed)
  end
end

-- Jobs whose lease ran out, that hold slots, and that this claim may not have itself.
local function others()
  local chosen, sources, found = ids and set(ids), {}, {}
  for _, queue in ipairs(moving) do
    if limited[queue] and limited[queue].hold then
      for _, lane in ipairs(call("SMEMBERS", PREFIX .. "busy:" .. queue)) do
        local task = string.sub(lane, #tostring(#queue) + #queue + 2)
        local known = not chosen_tasks or chosen_tasks[task]
        if chosen or not known then
          sources[#sources + 1] = by_score(PREFIX .. "leases:" .. lane, now_text)
          sources[#sources].known = known
        end
      end
    end
  end
  if left > 0 then
    merge(sources, math.min(left, 1000), function(id, from)
      if not (from.known and chosen[id]) then
        found[#found + 1] = id
      end
      return #found == left and "stop"
    end)
  end
  return found
end

-- Take jobs back, each written whole as core decided from the row of this digest.
local function take_back()
  local left_queues, most = {}, left
  begin_writing()
  for _, item in ipairs(back) do
    local id, row = item[1], item[2]
    local before = most > 0 and load(id)
    if before and redis.sha1hex(packed(id, load(id))) == item[5] then
      most = most - 1
      row[BODY], row[RESULT] = item[3], item[4]
      note_freed(freed, before)
      local queue = queue_of(before[LANE])
      left_queues[queue] = (left_queues[queue] or 0) + 1
      leave(id, before)
      call("DEL", job_key(id))
      write(id, row)
      enter(id, row)
      bereft[#bereft + 1] = id
      if FINAL[row[STATE]] then
        ended[#ended + 1] = id
      else
        woken[queue] = (woken[queue] or 0) + 1
      end
    end
  end
  note_left(left_queues, woken)
end

if gates and arms.slots then
  local strangers = others()
  for i, id in ipairs(strangers) do
    local row = packed(id, load(id))
    strangers[i] = "\146" .. row .. cmsgpack.pack(redis.sha1hex(row))
  end
  if #strangers > 0 then
    return "\147" .. cmsgpack.pack(now_text) .. array(0)
      .. array(#strangers) .. table.concat(strangers)
  end
end
if arms.promote then
  promote()
  if gates then
    gates.wake_rates(queues, limited, limit, now_text, woken)
  end
end
if arms.expired then
  expire()
end
if arms.resume and held then
  resume()
end
if back then
  take_back()
end
if arms.lapsed then
  lapsed()
end
if arms.due then
  due()
end

for key, members in pairs(out) do
  in_chunks("ZREM", PREFIX .. key, members)
  if string.sub(key, 1, 6) == "ready:" and call("EXISTS", PREFIX .. key) == 0 then
    local lane = string.sub(key, 7)
    call("SREM", PREFIX .. "lanes:" .. queue_of(lane), lane)
  end
end
for lane, members in pairs(into) do
  in_chunks("ZADD", PREFIX .. "leases:" .. lane, members, 2)
  call("SADD", PREFIX .. "busy:" .. queue_of(lane), lane)
end
in_chunks("SADD", PREFIX .. "held:" .. owner, taken)

-- Whoever found less than it could take is hungry; the others are told only if nobody is.
if ear ~= "" then
  for _, queue in ipairs(queues) do
    local score = text(left > 0 and now or now + 1e13)
    call("ZADD", PREFIX .. "ears:" .. queue, "XX", score, ear)
  end
end
for _, queue in pairs(promoted) do
  woken[queue] = (woken[queue] or 0) + 1
end
pass_on(freed, woken)
wake_all(woken, now)
tell("done", ended)
tell("cancel", bereft)
return "\147" .. cmsgpack.pack(now_text) .. array(#answers) .. table.concat(answers) .. array(0)
