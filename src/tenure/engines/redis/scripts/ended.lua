-- The first jobs that ended before an instant, in the order of their ends, then ids; looks at no
-- more than 1,000 of them. Nothing is written.
-- include: numbers base rows merge
--
-- KEYS[1]: see base.
-- ARGV[2]: {before, limit, states, queues, tasks, after}: `queues` and `tasks` false for any;
--   `after` {ended, id} to go on behind a job, or false.
-- Answers {ids, after}: `after` false when nothing is left.

local before, limit, states, queues, tasks, after = unpack(cmsgpack.unpack(ARGV[2]), 1, 6)
local chosen_tasks = tasks and set(tasks)
local sources, found, looked, last = {}, {}, 0, false
local function done(state, queue)
  local key = PREFIX .. "done:" .. state .. ":" .. queue
  local from = after and after[1] or "-inf"
  return source(function(offset, count)
    return call(
      "ZRANGEBYSCORE", key, from, "(" .. before, "WITHSCORES", "LIMIT", offset, count
    )
  end, true)
end
for _, queue in ipairs(queues or call("SMEMBERS", PREFIX .. "queues")) do
  for _, state in ipairs(states) do
    sources[#sources + 1] = done(state, queue)
  end
end
merge(sources, 250, function(id, from)
  looked = looked + 1
  local passed = after and from.number == tonumber(after[1])
    and (after[2] == id or is_before(id, after[2]))
  if not passed then
    local lane = tasks and call("HGET", job_key(id), "lane")
    local queue = lane and queue_of(lane)
    if not lane or chosen_tasks[string.sub(lane, #tostring(#queue) + #queue + 2)] then
      found[#found + 1] = id
    end
    last = {text(from.number), id}
  end
  return (#found == limit or looked == 1000) and "stop"
end)
if #found < limit and looked < 1000 then
  last = false
end
return cmsgpack.pack({found, last})
