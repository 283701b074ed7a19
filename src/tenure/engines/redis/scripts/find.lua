-- Read matching jobs, the newest first, looking at no more than a number of them.
-- include: numbers base rows
--
-- KEYS[1]: see base.
-- ARGV[2]: {before, limit, most, states, queues, tasks, keys, schedules, actors, made, ended, inside}:
--   `before` an id or false; then lists, or false for any; `made` and `ended` {from, to}, each an
--   instant or false. States are those of the field, so "pending" is "ready", "waiting" and more.
-- Answers {next, looked, rows}: `next` the id before which to go on, nil when everything was looked
--   at, which `looked` counts. With `inside`, whatever the limit, a row is {id, tags, metadata, error},
--   for the caller to choose.

local before, limit, most, states, queues, tasks, keys, schedules, actors, made, ended, inside =
  unpack(cmsgpack.unpack(ARGV[2]), 1, 12)

local function chosen(values)
  return values and set(values)
end
states, queues, tasks = chosen(states), chosen(queues), chosen(tasks)
keys, schedules, actors = chosen(keys), chosen(schedules), chosen(actors)

local function is_within(instant, range)
  if not instant then
    return not range[1] and not range[2]
  end
  return not (range[1] and is_less(instant, range[1]))
    and not (range[2] and not is_less(instant, range[2]))
end

local function matches(state, lane, key, schedule, made_at, ended_at)
  local queue = queue_of(lane)
  return not (states and not states[state])
    and not (queues and not queues[queue])
    and not (tasks and not tasks[string.sub(lane, #tostring(#queue) + #queue + 2)])
    and not (keys and not keys[key])
    and not (schedules and not schedules[schedule])
    and is_within(made_at, made)
    and is_within(ended_at, ended)
end

local first = before and "(" .. before or "+"
local ids = call("ZREVRANGEBYLEX", PREFIX .. "ids", first, "-", "LIMIT", 0, most)
local answers, looked = {}, 0
for _, id in ipairs(ids) do
  looked = looked + 1
  local values =
    call("HMGET", job_key(id), "state", "lane", "key", "sched", "made", "ended", "error")
  if matches(unpack(values, 1, 6)) then
    local tags, metadata, actor
    if actors or inside then
      local body = call("HGET", job_key(id), "body")
      tags, metadata, actor = select(2, cmsgpack.unpack_limit(body, INSIDE, BODY_HEAD))
    end
    if not actors or actors[actor] then
      if inside then
        answers[#answers + 1] = "\148" .. cmsgpack.pack(id) .. cmsgpack.pack(tags)
          .. cmsgpack.pack(metadata) .. cmsgpack.pack(values[7])
      else
        answers[#answers + 1] = packed(id, load(id))
        if #answers == limit then
          break
        end
      end
    end
  end
end
local all = looked == #ids and #ids < most
return "\147" .. cmsgpack.pack(not all and ids[looked] or nil) .. cmsgpack.pack(looked)
  .. array(#answers) .. table.concat(answers)
