-- Signals: hints to whoever listens. Needs base.

-- Tell that a queue got `count` jobs. Of a single one, only one of those that listen to this queue
-- hears: the one that was told longest ago and whose last claim left it hungry.
local function wake(queue, count, now)
  call("PUBLISH", PREFIX .. "!queue", queue)
  if count == 1 then
    local ears = PREFIX .. "ears:" .. queue
    for _ = 1, 8 do
      local first = call("ZRANGE", ears, 0, 0)[1]
      if not first then
        return
      end
      if call("PUBLISH", PREFIX .. "!ear:" .. first, queue) > 0 then
        call("ZADD", ears, text(now), first)
        return
      end
      call("ZREM", ears, first)  -- its process is gone
    end
  end
  call("PUBLISH", PREFIX .. "!queue:" .. queue, queue)
end

-- Tell of jobs, by id: `done`, or `cancel`.
local function tell(topic, ids)
  for first = 1, #ids, 1000 do
    local part = {unpack(ids, first, math.min(first + 999, #ids))}
    call("PUBLISH", PREFIX .. "!" .. topic, cmsgpack.pack(part))
  end
end

-- Tell all queues of a table {queue = count}.
local function wake_all(counts, now)
  for queue, count in pairs(counts) do
    wake(queue, count, now)
  end
end
