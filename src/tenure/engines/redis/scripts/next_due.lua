-- When the first pending job of some queues and tasks is due.
-- include: numbers base rows limits
--
-- KEYS[1], ARGV[1]: see base. ARGV[2]: {queues, tasks}: `tasks` false for any.
-- Answers {now, first, limited}: `first` the time of the first job that waits; "" if a job is ready; nil
--   if there is none. Of each queue with limits, which is not in it, `limited`
--   has {settings, how many run, first, arrival, wake}: of its rate, and when the first of the jobs
--   are looked at that rates of keys hold back; nil: never.

local queues, tasks = unpack(cmsgpack.unpack(ARGV[2]), 1, 2)

local function earlier(one, other)
  return (not one or (other and is_before(other, one))) and other or one
end

local function first_in(key)
  return call("ZRANGE", key, 0, 0)[1]
end

-- The time at which the job of a member of a set is due, packed.
local function due_at(member)
  if member and member ~= "" then
    member = call("HGET", job_key(string.sub(member, 9)), "at")
  end
  return cmsgpack.pack(member)
end

local function first_of(queue)
  if not tasks then
    if call("EXISTS", PREFIX .. "lanes:" .. queue) == 1 then
      return ""
    end
    return first_in(PREFIX .. "future:" .. queue)
  end
  local some, first = call("EXISTS", PREFIX .. "future:" .. queue) == 1, nil
  for _, task in ipairs(tasks) do
    local lane = lane_of(queue, task)
    if call("EXISTS", PREFIX .. "ready:" .. lane) == 1 then
      return ""
    end
    if some then
      first = earlier(first, first_in(PREFIX .. "waiting:" .. lane))
    end
  end
  return first
end

local first, limited = nil, {}
for _, queue in ipairs(queues) do
  local given = special(queue)
  if not (given and given.paused) and first ~= "" then
    local own = first_of(queue)
    if given then
      local woken = call("ZRANGE", PREFIX .. "wakes:" .. queue, 0, 0)[1]
      local wake = woken and flow().cell_of(queue, string.sub(woken, 9)).wake
      limited[#limited + 1] = "\149"
        .. cmsgpack.pack(call("HGET", PREFIX .. "settings", queue))
        .. cmsgpack.pack(flow().running_in(queue)) .. due_at(own)
        .. cmsgpack.pack(flow().cell_of(queue, "").arrival) .. cmsgpack.pack(wake)
    else
      first = earlier(first, own)
    end
  end
end
return "\147" .. cmsgpack.pack(text(clock())) .. due_at(first)
  .. array(#limited) .. table.concat(limited)
