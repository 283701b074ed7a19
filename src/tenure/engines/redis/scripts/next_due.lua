-- When the first pending job of some queues and tasks is due.
-- include: numbers base
--
-- KEYS[1], ARGV[1]: see base. ARGV[2]: {queues, tasks}: `tasks` false for any.
-- Answers {now, at}: `at` the time of the first job that waits, as 8 bytes of a place; "" if a job is
--   ready; false if there is none.

local queues, tasks = unpack(cmsgpack.unpack(ARGV[2]), 1, 2)
local now = clock()
local first = false

local function consider(key)
  local member = call("ZRANGE", key, 0, 0)[1]
  if member then
    local at = string.sub(member, 1, 8)
    if not first or is_before(at, first) then
      first = at
    end
  end
end

for _, queue in ipairs(queues) do
  if call("SISMEMBER", PREFIX .. "paused", queue) == 0 then
    if not tasks then
      if call("EXISTS", PREFIX .. "lanes:" .. queue) == 1 then
        return {text(now), ""}
      end
      consider(PREFIX .. "future:" .. queue)
    else
      local some = call("EXISTS", PREFIX .. "future:" .. queue) == 1
      for _, task in ipairs(tasks) do
        local lane = lane_of(queue, task)
        if call("EXISTS", PREFIX .. "ready:" .. lane) == 1 then
          return {text(now), ""}
        end
        if some then
          consider(PREFIX .. "waiting:" .. lane)
        end
      end
    end
  end
end
return {text(now), first}
