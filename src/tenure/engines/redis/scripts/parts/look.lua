-- What decisions of `core` are made from, read in one step. Needs base, numbers, rows, merge.
--
-- A question is {ids, keys, ticks, known, living, schedules, queues, turns, more, lapsed}, lists of
-- text but for `turns`, a list of {queue, fair_key, priority}, and the last two. Answers, as one
-- msgpack value, a list of
--   1 rows of `ids`, and with `lapsed` (a limit; false: none) those whose lease ran out at `now`
--   2 who has each of `keys`, and, with `more`, the key of each row: {key, twin's row, reservation,
--     its job's row}
--   3 the job of each of `ticks`, by tick_name
--   4 which of `known` are there, as "1" and "0"
--   5 the rows of the living jobs of each of the schedules `living`
--   6 what is kept of each of `schedules`; the last one is the revision drawn last
--   7 the settings of each of `queues`
--   8 the last rank of those who take turns, where there is one, of each of `turns` and, with `more`,
--     of those with whom the rows do: {queue, fair_key, priority, rank}

local function packed_row(id)
  local row = id and load(id)
  return row and packed(id, row) or "\192"
end

local function list_of(values)
  return array(#values) .. table.concat(values)
end

local function holder(key)
  local twin = call("HGET", PREFIX .. "unique", key)
  local kept = call("HGET", PREFIX .. "forever", key)
  local job = kept and string.sub(kept, string.find(kept, ":", 1, true) + 1)
  return "\148" .. cmsgpack.pack(key) .. packed_row(twin) .. cmsgpack.pack(kept) .. packed_row(job)
end

local function lapsed_ids(limit, now)
  local sources, found = {}, {}
  for _, queue in ipairs(call("SMEMBERS", PREFIX .. "queues")) do
    for _, lane in ipairs(call("SMEMBERS", PREFIX .. "busy:" .. queue)) do
      sources[#sources + 1] = by_score(PREFIX .. "leases:" .. lane, text(now))
    end
  end
  if limit > 0 then
    merge(sources, math.min(limit, 1000), function(id)
      found[#found + 1] = id
      return #found == limit and "stop"
    end)
  end
  return found
end

local function look(question, now)
  local ids, keys, ticks, known, living, schedules, queues, turns, more, lapsed =
    unpack(question, 1, 10)
  local rows, holders, jobs, flags, lists, kept, settings, ranks = {}, {}, {}, {}, {}, {}, {}, {}
  local asked, met = {}, {}
  local function ask(key)
    if not asked[key] then
      asked[key] = true
      holders[#holders + 1] = holder(key)
    end
  end
  local function ask_turn(row)
    local name = turns_key(row)
    local rank = not met[name] and last_turn(row)
    met[name] = true
    if rank then
      ranks[#ranks + 1] = cmsgpack.pack({queue_of(row[LANE]), row[FKEY], row[PRI] or "0", rank})
    end
  end
  if lapsed then
    ids = lapsed_ids(lapsed, now)
  end
  for i, id in ipairs(ids) do
    local row = load(id)
    if more and row and row[KEY] then
      ask(row[KEY])
    end
    if more and row and row[FKEY] then
      ask_turn(row)
    end
    rows[i] = row and packed(id, row) or "\192"
  end
  for _, key in ipairs(keys) do
    ask(key)
  end
  for i, name in ipairs(ticks) do
    jobs[i] = cmsgpack.pack(call("HGET", PREFIX .. "ticks", name))
  end
  for i, id in ipairs(known) do
    flags[i] = tostring(call("EXISTS", job_key(id)))
  end
  for i, name in ipairs(living) do
    local found = {}
    local members = call("SMEMBERS", PREFIX .. "living:" .. name)
    table.sort(members, is_before)
    for _, id in ipairs(members) do
      found[#found + 1] = packed_row(id)
    end
    lists[i] = list_of(found)
  end
  for i, name in ipairs(schedules) do
    kept[i] = cmsgpack.pack(call("HGET", PREFIX .. "schedules", name))
  end
  if #schedules > 0 then
    kept[#kept + 1] = cmsgpack.pack(call("HGET", PREFIX .. "meta", "revision"))
  end
  for i, queue in ipairs(queues) do
    settings[i] = cmsgpack.pack(call("HGET", PREFIX .. "settings", queue))
  end
  for _, turn in ipairs(turns) do
    ask_turn({[LANE] = lane_of(turn[1], ""), [FKEY] = turn[2], [PRI] = turn[3]})
  end
  return "\152" .. list_of(rows) .. list_of(holders) .. list_of(jobs)
    .. cmsgpack.pack(table.concat(flags)) .. list_of(lists) .. list_of(kept)
    .. list_of(settings) .. list_of(ranks)
end
