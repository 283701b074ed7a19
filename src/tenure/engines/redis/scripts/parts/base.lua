-- What every script begins with: the names of keys, the time, the arguments.
--
-- KEYS[1] is the prefix of the namespace, as `{tenure}:`. No key has this very name, on purpose:
-- while the slot of a cluster is being moved, the server refuses a script for a key that is not
-- there, so no script ever sees one half of a namespace. All other names are made from it here;
-- docs/reference/redis-keys.md tells what each key holds.
-- ARGV[1]: the store's time in microseconds; empty: that of the server.
-- ARGV[2]: the other arguments, as msgpack. Every number in it that may be large is decimal text.

local PREFIX = KEYS[1]
local call = redis.call

local function clock()
  if ARGV[1] ~= "" then
    return tonumber(ARGV[1])
  end
  local time = call("TIME")
  return time[1] * 1000000 + time[2]
end

-- A lane, the jobs of one queue and task, as part of names of keys.
local function lane_of(queue, task)
  return #queue .. ":" .. queue .. task
end

local queues_of_lanes = {}

local function queue_of(lane)
  local queue = queues_of_lanes[lane]
  if not queue then
    local colon = string.find(lane, ":", 1, true)
    queue = string.sub(lane, colon + 1, colon + tonumber(string.sub(lane, 1, colon - 1)))
    queues_of_lanes[lane] = queue
  end
  return queue
end

-- Add one or two values to the list of a name.
local function append(lists, name, first, second)
  local list = lists[name]
  if not list then
    list = {}
    lists[name] = list
  end
  list[#list + 1] = first
  if second then
    list[#list + 1] = second
  end
end

-- What becomes of a command that takes many values: at most 1,000 of them at once.
local function in_chunks(command, key, values, width)
  local step = 1000 * (width or 1)
  for first = 1, #values, step do
    call(command, key, unpack(values, first, math.min(first + step - 1, #values)))
  end
end

-- The beginning of a msgpack array.
local function array(length)
  if length < 16 then
    return string.char(144 + length)
  end
  return struct.pack(">BI4", 221, length)
end

-- Write something that needs no memory. The server looks whether memory has run out at the first
-- write of a script only; so what ends or keeps an attempt is let through even then.
local function begin_writing()
  call("SREM", PREFIX .. "meta:none", "")
end

local function set(list)
  local found = {}
  for i = 1, #list do
    found[list[i]] = true
  end
  return found
end
