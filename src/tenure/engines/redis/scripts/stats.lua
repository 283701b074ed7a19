-- Count jobs, by the sizes of sorted sets: no job is read.
-- include: numbers base
--
-- KEYS[1], ARGV[1]: see base. ARGV[2]: a list of queues, or false for all that hold jobs.
-- Answers a list of {queue, pending, blocked, scheduled, running, lapsed, completed, failed,
--   cancelled, expired, oldest_due}, numbers as text, `oldest_due` false if nothing is due.

local queues = cmsgpack.unpack(ARGV[2]) or call("SMEMBERS", PREFIX .. "queues")
local now = clock()
local now_text = text(now)
local answers = {}
for i, queue in ipairs(queues) do
  local due, future = PREFIX .. "due:" .. queue, PREFIX .. "future:" .. queue
  local past = "(" .. place(text(now + 1))
  local pending = call("ZCOUNT", due, "-inf", now_text) + call("ZLEXCOUNT", future, "-", past)
  local all = call("ZCARD", due) + call("ZCARD", future)
  local running, lapsed = 0, 0
  for _, lane in ipairs(call("SMEMBERS", PREFIX .. "busy:" .. queue)) do
    running = running + call("ZCARD", PREFIX .. "leases:" .. lane)
    lapsed = lapsed + call("ZCOUNT", PREFIX .. "leases:" .. lane, "-inf", now_text)
  end
  local oldest
  local first = call("ZRANGE", due, 0, 0, "WITHSCORES")[2]
  if first and tonumber(first) <= now then
    oldest = now - tonumber(first)
  end
  local waiting = call("ZRANGEBYLEX", future, "-", past, "LIMIT", 0, 1)[1]
  if waiting then
    local high, low = struct.unpack(">I4I4", waiting)
    oldest = math.max(oldest or 0, now - ((high - TWO31) * TWO32 + low))
  end
  local blocked = call("ZCARD", PREFIX .. "blocked:" .. queue)
  local answer = {queue, text(pending), text(blocked), text(all - pending)}
  answer[5], answer[6] = text(running), text(lapsed)
  for _, state in ipairs({"completed", "failed", "cancelled", "expired"}) do
    answer[#answer + 1] = text(call("ZCARD", PREFIX .. "done:" .. state .. ":" .. queue))
  end
  answer[#answer + 1] = oldest and text(oldest) or false
  answers[i] = answer
end
return cmsgpack.pack(answers)
