-- Make the next jobs of a queue ready that limits of keys held back, after these limits changed.
-- include: numbers base signals rows limits
--
-- KEYS[1], ARGV[1]: see base. ARGV[2]: {queue, count}. Answers whether there may be more.
--
-- How far it got is kept in `freeing`, so whoever goes on, does so from there: first the wake-ups of
-- rates go, then the jobs, in the order of ids. What is blocked meanwhile is blocked by the new limits;
-- if it becomes ready once more, a claim blocks it again. Safe to repeat.

local queue, count = unpack(cmsgpack.unpack(ARGV[2]), 1, 2)
local freeing, wakes = PREFIX .. "freeing", PREFIX .. "wakes:" .. queue
local after = call("HGET", freeing, queue)
if not after then
  return 0
end
begin_writing()
local members = after == "" and call("ZRANGE", wakes, 0, count - 1) or {}
for _, member in ipairs(members) do
  local key = string.sub(member, 9)
  local cell = flow().cell_of(queue, key)
  flow().keep_cell(queue, key, cell, cell.arrival, nil)
end
if #members == count then
  return 1
end
local ids = call("ZRANGEBYLEX", PREFIX .. "blocked:" .. queue, "(" .. after, "+", "LIMIT", 0, count)
local woken = {}
for _, id in ipairs(ids) do
  flow().unblock(id, woken)
end
wake_all(woken, clock())
if #ids < count then
  call("HDEL", freeing, queue)
  return 0
end
call("HSET", freeing, queue, ids[#ids])
return 1
