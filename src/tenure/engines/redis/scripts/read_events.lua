-- Read the next events, at most 1,000.
-- include: base
--
-- KEYS[1]: see base. ARGV[2]: {after, count, jobs}: `after` a number; `jobs` ids, or false for any.
-- Answers a list of {number, at, data}, in order.

local after, count, jobs = unpack(cmsgpack.unpack(ARGV[2]), 1, 3)
local answers = {}

local function add(entries)
  for _, entry in ipairs(entries) do
    local number = string.sub(entry[1], 1, -3)
    answers[#answers + 1] = "\147" .. cmsgpack.pack(number) .. cmsgpack.pack(entry[2][2])
      .. entry[2][4]
  end
end

if jobs then
  local numbers = {}
  for _, job in ipairs(jobs) do
    for _, number in ipairs(call("LRANGE", PREFIX .. "events:of:" .. job, 0, -1)) do
      numbers[#numbers + 1] = tonumber(number)
    end
  end
  table.sort(numbers)
  for _, number in ipairs(numbers) do
    if number > after and #answers < count then
      local id = string.format("%.0f-0", number)
      add(call("XRANGE", PREFIX .. "events", id, id))
    end
  end
else
  local first = string.format("%.0f-0", after + 1)
  add(call("XRANGE", PREFIX .. "events", first, "+", "COUNT", count))
end
return array(#answers) .. table.concat(answers)
