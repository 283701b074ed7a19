-- What decisions of `core` are made from, read in one step. Needs base, numbers, rows, merge.
--
-- A question is {ids, keys, ticks, known, living, schedules, keys_of_rows, lapsed}, lists of text
-- but for the last two. Answers, as one msgpack value, a list of
--   1 rows of `ids`, and with `lapsed` (a limit; false: none) those whose lease ran out at `now`
--   2 {twin's row, reservation, its job's row} of each of `keys`, and, with `keys_of_rows`, of the
--     key of each row: {key, twin, reservation, row}
--   3 the job of each of `ticks`, by tick_name
--   4 which of `known` are there, as "1" and "0"
--   5 the rows of the living jobs of each of the schedules `living`
--   6 what is kept of each of `schedules`; the last one is the revision drawn last

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
  local ids, keys, ticks, known, living, schedules, keys_of_rows, lapsed = unpack(question, 1, 8)
  local rows, holders, jobs, flags, lists, kept = {}, {}, {}, {}, {}, {}
  local asked = {}
  local function ask(key)
    if not asked[key] then
      asked[key] = true
      holders[#holders + 1] = holder(key)
    end
  end
  if lapsed then
    ids = lapsed_ids(lapsed, now)
  end
  for i, id in ipairs(ids) do
    rows[i] = packed_row(id)
    if keys_of_rows then
      local key = call("HGET", job_key(id), "key")
      if key then
        ask(key)
      end
    end
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
  return "\150" .. list_of(rows) .. list_of(holders) .. list_of(jobs)
    .. cmsgpack.pack(table.concat(flags)) .. list_of(lists) .. list_of(kept)
end
