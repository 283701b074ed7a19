-- Read matching jobs, the newest first, looking at no more than 1,000 of them.
-- include: base rows
--
-- KEYS[1]: see base.
-- ARGV[2]: {before, limit, states, queues, tasks}: `before` an id or false; lists, or false for any.
--   States are those of the field, so "pending" is "ready" and "waiting".
-- Answers {next, rows}: `next` the id before which to go on, nil when everything was looked at.

local before, limit, states, queues, tasks = unpack(cmsgpack.unpack(ARGV[2]), 1, 5)
local chosen_states, chosen_queues = states and set(states), queues and set(queues)
local chosen_tasks = tasks and set(tasks)

local function matches(state, lane)
  if chosen_states and not chosen_states[state] then
    return false
  end
  local queue = queue_of(lane)
  if chosen_queues and not chosen_queues[queue] then
    return false
  end
  return not chosen_tasks or chosen_tasks[string.sub(lane, #tostring(#queue) + #queue + 2)]
end

local most = before and "(" .. before or "+"
local ids = call("ZREVRANGEBYLEX", PREFIX .. "ids", most, "-", "LIMIT", 0, 1000)
local answers, last = {}, nil
for i, id in ipairs(ids) do
  local fields = call("HMGET", job_key(id), "state", "lane")
  if matches(fields[1], fields[2]) then
    answers[#answers + 1] = packed(id, load(id))
    if #answers == limit then
      last = i < #ids and id or nil
      break
    end
  end
  last = id
end
if #ids < 1000 and #answers < limit then
  last = nil
end
return "\146" .. (last and cmsgpack.pack(last) or "\192") .. array(#answers) .. table.concat(answers)
