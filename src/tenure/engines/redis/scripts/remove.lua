-- Remove jobs that ended before an instant, if that is still so.
-- include: numbers base rows
--
-- KEYS[1]: see base. ARGV[2]: {before, ids}. Answers how many were removed. Safe to repeat.

local before, ids = unpack(cmsgpack.unpack(ARGV[2]), 1, 2)
local removed, queues = 0, {}
for _, id in ipairs(ids) do
  local row = load(id)
  if row and FINAL[row[STATE]] and is_less(row[ENDED], before) then
    leave(id, row)
    call("DEL", job_key(id))
    call("ZREM", PREFIX .. "ids", id)
    if tick_name(row) then
      call("HDEL", PREFIX .. "ticks", tick_name(row))
    end
    queues[queue_of(row[LANE])] = true
    removed = removed + 1
  end
end
for queue in pairs(queues) do
  local keys = {}
  for i, name in ipairs({"due", "future", "busy", "done:completed", "done:failed",
    "done:cancelled", "done:expired"}) do
    keys[i] = PREFIX .. name .. ":" .. queue
  end
  if call("EXISTS", unpack(keys)) == 0 then
    call("SREM", PREFIX .. "queues", queue)
  end
end
return removed
